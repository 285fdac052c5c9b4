//! One API server for all tests, and the program started beside it.

use std::path::Path;
use std::time::Duration;

use testbed::{ManagerProcess, Options, Process, World};
use tokio::sync::OnceCell;

static WORLD: OnceCell<World> = OnceCell::const_new();

/// Generous, as two cores are shared with the API server.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The shared API server, started when first asked for.
pub(crate) async fn world() -> &'static World {
    WORLD.get_or_init(async || World::start(Options::default()).await.unwrap()).await
}

/// The program, which is not ready yet.
pub(crate) async fn start(env: &[(&str, &str)], args: &[&str]) -> ManagerProcess {
    world().await.start_manager(Path::new(env!("CARGO_BIN_EXE_capmox")), env, args).unwrap()
}

/// The program, ready.
pub(crate) async fn ready(env: &[(&str, &str)], args: &[&str]) -> ManagerProcess {
    ready_in(world().await, env, args).await
}

/// The program beside this API server, ready.
pub(crate) async fn ready_in(world: &World, env: &[(&str, &str)], args: &[&str]) -> ManagerProcess {
    let program = Path::new(env!("CARGO_BIN_EXE_capmox"));
    let mut manager = world.start_manager(program, env, args).unwrap();
    manager.wait_ready(PATIENCE).await.unwrap();
    manager
}

/// Waits until it ends by itself; gives its exit code.
pub(crate) async fn end_of(manager: &mut ManagerProcess) -> Option<i32> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        if let Some(status) = manager.exit_status() {
            return status.code();
        }
        assert!(tokio::time::Instant::now() < deadline, "does not end: {}", manager.log_tail(20));
    }
}

/// Waits until the log says all of the words.
pub(crate) async fn says(manager: &mut ManagerProcess, words: &[&str]) {
    let log = manager.log().to_owned();
    let told = async || {
        let log = std::fs::read_to_string(&log).unwrap();
        words.iter().all(|word| log.contains(word))
    };
    Process::wait_ready(manager, PATIENCE, told).await.unwrap();
}

/// A GET that believes any certificate: status and text.
pub(crate) async fn get(url: &str, bearer: Option<&str>) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
    let mut request = client.get(url).timeout(PATIENCE);
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// What `/readyz` says.
pub(crate) async fn readiness(manager: &ManagerProcess) -> (u16, String) {
    get(&format!("http://127.0.0.1:{}/readyz", manager.health_port), None).await
}
