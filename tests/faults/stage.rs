//! The control plane and the manager that all cases share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kube::Client;
use testbed::{ManagerProcess, Options, World};
use tokio::sync::{Mutex, OnceCell};

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// How long the manager may take until it is ready.
const READY: Duration = Duration::from_secs(30);

/// An API server with all definitions, and the provider.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) client: Client,
    manager: Mutex<ManagerProcess>,
    log: PathBuf,
    /// Cases under way.
    pub(crate) busy: AtomicUsize,
}

/// The shared stage, set when first asked for.
pub(crate) async fn set() -> &'static Stage {
    STAGE.get_or_init(async || start().await.expect("the stage can be set")).await
}

async fn start() -> Result<Stage> {
    let world = World::start(Options::default()).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_capmox"));
    // Each Proxmox call and each decision is logged: what must not be in a log must not be here.
    let mut manager = world.start_manager(program, &[], &["--embedded-ipam", "--v=4"])?;
    manager.wait_ready(READY).await?;
    let log = manager.log().to_owned();
    let client = world.client().await?;
    let busy = AtomicUsize::new(0);
    Ok(Stage { world, client, manager: Mutex::new(manager), log, busy })
}

impl Stage {
    /// What the manager has logged.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Whether only one case is left.
    pub(crate) fn is_calm(&self) -> bool {
        self.busy.load(Ordering::SeqCst) <= 1
    }
}

/// Ends the manager softly, and sees that it lived until then.
///
/// # Errors
/// If it ended by itself, panicked, or does not end well.
pub(crate) async fn end() -> Result<()> {
    let Some(stage) = STAGE.get() else { return Ok(()) };
    let mut manager = stage.manager.lock().await;
    if let Some(status) = manager.exit_status() {
        bail!("the manager ended with {status}:\n{}", manager.log_tail(30));
    }
    let status = manager.stop().await?;
    ensure!(status.success(), "the manager ended with {status}:\n{}", manager.log_tail(30));
    let log = stage.log();
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panicked at")).collect();
    ensure!(panics.is_empty(), "the manager panicked: {panics:?}");
    let circles: Vec<&str> =
        log.lines().filter(|line| line.contains("go round in circles")).collect();
    ensure!(circles.is_empty(), "decisions without an end: {circles:?}");
    Ok(())
}
