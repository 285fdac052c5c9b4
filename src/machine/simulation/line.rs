//! The calls of the process, on their way to Proxmox and to the API server in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::State as Extracted;
use axum::http::{Request as HttpRequest, Response as HttpResponse};
use futures::future::BoxFuture;
use pve_fake::TaskFate;
use pve_fake::model::{Credentials, Request, Response, Upload};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::Mishap;
use super::world::World;
use super::{dialect, kubernetes};
use crate::pve::{Asked, Call, Line, Observer, Outcome};

/// Id and secret of the API token.
pub(super) const TOKEN: (&str, &str) = ("capmox@pve!capi", "8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b11");

/// A call takes so long to arrive.
const LATENCY: Duration = Duration::from_millis(5);

/// After which the process gives an answer up.
const PATIENCE: Duration = Duration::from_mins(1);

/// The process's way to Proxmox.
#[derive(Debug, Clone)]
pub(super) struct Wire(pub(super) Arc<World>);

impl Observer for Wire {
    fn called(&self, _: &Call) {}

    fn line(&self) -> Option<Arc<dyn Line>> {
        Some(Arc::new(self.clone()))
    }
}

impl Line for Wire {
    fn ask(&self, asked: Asked) -> BoxFuture<'static, Outcome> {
        let world = Arc::clone(&self.0);
        let carried = tokio::spawn(async move { proxmox(&world, asked).await });
        Box::pin(async move { carried.await.unwrap_or(Outcome::Silence) })
    }

    fn chance(&self) -> u64 {
        self.0.lock().dice.next()
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep_until(Instant::now() + time).await;
}

fn refused(status: u16) -> Outcome {
    let reason = match status {
        401 => "no such user",
        403 => "Permission check failed",
        409 => "got no worker upid - start worker failed",
        429 => "Too Many Requests",
        595 => "No route to host",
        596 => "Broken pipe",
        _ => "internal error",
    };
    Outcome::Answer { status, reason: Some(reason.to_owned()), body: json!({"data": null}) }
}

fn said(text: &str) -> Outcome {
    let reason = Some(text.to_owned());
    Outcome::Answer { status: 500, reason, body: json!({"data": null}) }
}

/// Whether the process died.
enum Before {
    Goes(Option<Mishap>),
    Ends(Outcome),
}

async fn before(world: &Arc<World>, what: &str) -> Before {
    let mishap = world.begin(what);
    pass(LATENCY).await;
    Before::Ends(match mishap {
        Some(Mishap::CrashBefore) => {
            world.crash();
            Outcome::Silence
        }
        Some(Mishap::NotConnected) => Outcome::Broken { sent: false },
        Some(Mishap::BreakBefore) => Outcome::Broken { sent: true },
        Some(Mishap::HangBefore) => {
            pass(PATIENCE).await;
            Outcome::Silence
        }
        Some(Mishap::Refuse(status)) => refused(status),
        Some(Mishap::Says(text)) => said(text),
        mishap => return Before::Goes(mishap),
    })
}

/// What is told in the place of an answer, if anything.
async fn after(world: &Arc<World>, mishap: Option<Mishap>) -> Option<Outcome> {
    Some(match mishap? {
        Mishap::CrashAfter => {
            world.crash();
            Outcome::Silence
        }
        Mishap::BreakAfter => Outcome::Broken { sent: true },
        Mishap::HangAfter => {
            pass(PATIENCE).await;
            Outcome::Silence
        }
        Mishap::RefuseAfter(status) => refused(status),
        Mishap::SaysAfter(text) => said(text),
        Mishap::Delay(millis) => {
            pass(Duration::from_millis(millis)).await;
            return None;
        }
        _ => return None,
    })
}

async fn proxmox(world: &Arc<World>, asked: Asked) -> Outcome {
    let what = format!("{} {}", asked.method, asked.path);
    let life = world.lock().life;
    let mishap = match before(world, &what).await {
        Before::Goes(mishap) => mishap,
        Before::Ends(outcome) => return outcome,
    };
    let request = request(&asked);
    let fate = match mishap {
        Some(Mishap::FailTask { with_effect }) => {
            Some(TaskFate { text: "the task went wrong".to_owned(), with_effect })
        }
        Some(Mishap::TaskSays { text, with_effect }) => {
            Some(TaskFate { text: text.to_owned(), with_effect })
        }
        _ => None,
    };
    if let Some(task) = asked.path.split('/').find(|part| part.starts_with("UPID:"))
        && world.lock().lost_tasks.contains(task)
    {
        let body = json!({"data": null, "errors": {"upid": "no such task"}});
        let reason = Some("Parameter verification failed.".to_owned());
        return Outcome::Answer { status: 400, reason, body };
    }
    if let Some(Mishap::Late(millis)) = mishap {
        pass(Duration::from_millis(millis)).await;
    }
    world.lock().about_to(&asked);
    let dialects = world.plan.dialects;
    let instead = dialect::instead(dialects, &world.lock(), &asked);
    let mut response = match instead {
        Some(response) => response,
        None => effect(world, &request, fate).await,
    };
    if asked.path == "/cluster/tasks"
        && let Some(listed) = response.body["data"].as_array_mut()
    {
        let lost = &world.lock().lost_tasks;
        listed.retain(|task| task["upid"].as_str().is_none_or(|upid| !lost.contains(upid)));
    }
    if mishap == Some(Mishap::LoseTask)
        && let Some(task) = response.body["data"].as_str()
    {
        world.lock().lost_tasks.insert(task.to_owned());
    }
    if mishap.is_none()
        && asked.path.ends_with("/clone")
        && let Some(task) = response.body["data"].as_str()
    {
        world.has_cloned(task, life);
    }
    world.had_effect(&asked, &response);
    if let Some(outcome) = after(world, mishap).await {
        return outcome;
    }
    dialect::say(dialects, &mut world.lock(), world.millis(), &asked, &mut response);
    pass(response.delay).await;
    Outcome::Answer { status: response.status, reason: response.reason, body: response.body }
}

/// A call waits for a lock as long as a server waits for it.
async fn effect(world: &Arc<World>, request: &Request, fate: Option<TaskFate>) -> Response {
    let began = Instant::now();
    loop {
        let (mut response, due) = {
            let now = world.now();
            let mut state = world.lock();
            let response = state.model.handle_fated(request, now, fate.clone());
            (response, state.model.next_due().map_or(Duration::ZERO, |due| due.since(now)))
        };
        let left = response.delay.saturating_sub(began.elapsed());
        if !response.blocked || left.is_zero() {
            if response.blocked {
                response.delay = Duration::ZERO;
            }
            return response;
        }
        pass(due.clamp(Duration::from_millis(1), left)).await;
    }
}

fn request(asked: &Asked) -> Request {
    let method = asked.method.parse().expect("a method of HTTP");
    let token = Some(format!("{}={}", TOKEN.0, TOKEN.1));
    let credentials = Credentials { token, ..Credentials::default() };
    let mut request = Request::new(method, &asked.path, credentials);
    for (key, value) in &asked.parameters {
        request.params.push(key, value.clone());
    }
    if let Some((file_name, data)) = asked.file.clone() {
        request.params.push("filename", file_name.clone());
        request.upload = Some(Upload { file_name, data });
    }
    request
}

/// The API server as the Kubernetes client's transport.
pub(super) fn api_server(world: &Arc<World>) -> axum::Router {
    axum::Router::new().fallback(handle).with_state(Arc::clone(world))
}

async fn handle(
    Extracted(world): Extracted<Arc<World>>,
    request: HttpRequest<Body>,
) -> HttpResponse<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
    let carried = tokio::spawn(async move { kubernetes(&world, &method, &path, &body).await });
    if let Ok(Outcome::Answer { status, body, .. }) = carried.await {
        return answer(status, body.to_string().into());
    }
    let broken = futures::stream::once(async {
        Err::<bytes::Bytes, _>(std::io::Error::other("the connection broke"))
    });
    answer(200, Body::from_stream(broken))
}

fn answer(status: u16, body: Body) -> HttpResponse<Body> {
    HttpResponse::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body)
        .expect("a sound answer")
}

async fn kubernetes(world: &Arc<World>, method: &str, path: &str, body: &Value) -> Outcome {
    let answered =
        |(status, body): kubernetes::Answer| Outcome::Answer { status, reason: None, body };
    if path.contains("/events") {
        world.told(body);
        return answered((200, body.clone()));
    }
    let mishap = match before(world, &format!("{method} {path}")).await {
        Before::Goes(mishap) => mishap,
        Before::Ends(Outcome::Answer { status, .. }) => {
            return answered(kubernetes::refusal(server_status(status)));
        }
        Before::Ends(outcome) => return outcome,
    };
    let given = world.lock().kubernetes.answer(method, path, body);
    world.note(format!("  {} {body}", given.0));
    world.check();
    match after(world, mishap).await {
        Some(Outcome::Answer { status, .. }) => {
            answered(kubernetes::refusal(server_status(status)))
        }
        Some(outcome) => outcome,
        None => answered(given),
    }
}

/// What the API server would say where Proxmox says this.
const fn server_status(status: u16) -> u16 {
    match status {
        595 | 596 | 599 => 500,
        status => status,
    }
}
