//! One call from its arrival to its answer: faults, hooks, the model, the journal.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::answer::{Answer, render};
use super::shared::Shared;
use super::{admin, body};
use crate::fault::Action;
use crate::hook::{HookCall, When};
use crate::journal::{Entry, readable};
use crate::model::{Request, Response, TaskFate};

/// Answers one HTTP request. What has come in is carried through even if the client goes away.
pub(super) async fn take(shared: Arc<Shared>, request: http::Request<Incoming>) -> Answer {
    let (parts, incoming) = request.into_parts();
    if parts.uri.path().starts_with("/fake/") {
        return Answer::Reply(admin::answer(&shared, &parts, incoming).await);
    }
    let request = match body::read(&parts, incoming, shared.release).await {
        Ok(request) => request,
        Err((status, text)) => return Answer::Reply(render(&refused(status, text))),
    };
    let carried = tokio::spawn(carry(shared, request));
    carried.await.unwrap_or(Answer::Drop)
}

fn refused(status: u16, text: String) -> Response {
    Response {
        status,
        body: json!({ "data": null }),
        reason: Some(text),
        delay: Duration::ZERO,
        endpoint: "",
        effect: None,
        blocked: false,
    }
}

/// Counts a call as under way for as long as it lives.
struct InFlight {
    shared: Arc<Shared>,
    path: String,
    seq: u64,
    at: u64,
}

impl InFlight {
    fn new(shared: &Arc<Shared>, path: &str) -> Self {
        let seq = shared.journal.lock().unwrap_or_else(PoisonError::into_inner).begin(path);
        let at = shared.clock.now().0;
        Self { shared: Arc::clone(shared), path: path.to_owned(), seq, at }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let journal = self.shared.journal.lock();
        journal.unwrap_or_else(PoisonError::into_inner).end(&self.path);
    }
}

async fn carry(shared: Arc<Shared>, request: Request) -> Answer {
    let flight = InFlight::new(&shared, &request.path);
    pass(shared.timings.call).await;
    let method = request.method.as_str();
    let fault = {
        let mut faults = shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.decide(method, &request.path)
    };
    hook(&shared, &flight, &request, None).await;
    let early = match &fault {
        Some(Action::Reply { status, text }) => Some(refused(*status, text.clone())),
        Some(Action::Limit { .. }) => Some(refused(429, "Too Many Requests".to_owned())),
        Some(Action::DropBefore | Action::Hang) => Some(refused(0, String::new())),
        Some(Action::Change(change)) => {
            shared.present().change(change.clone());
            None
        }
        _ => None,
    };
    if let Some(Action::DropThenEffect { millis }) = &fault {
        tokio::spawn(take_effect_later(shared, flight, request, Duration::from_millis(*millis)));
        return Answer::Drop;
    }
    let mut response = match early {
        Some(response) => response,
        None => effect(&shared, &request, fault.as_ref()).await,
    };
    hook(&shared, &flight, &request, Some(&response)).await;
    match &fault {
        Some(Action::ReplyAfter { status, text }) => {
            let kept = (response.effect.take(), response.endpoint);
            response = refused(*status, text.clone());
            (response.effect, response.endpoint) = kept;
        }
        Some(Action::DropAfter | Action::HangAfter) => response.status = 0,
        Some(Action::AnswerWith { data }) if response.status == 200 => {
            response.body = json!({ "data": data });
        }
        Some(Action::AnswerWithout { fields }) => take_out(&mut response.body, fields),
        Some(Action::Delay { millis }) => response.delay += Duration::from_millis(*millis),
        _ => {}
    }
    shared.wake.notify_one();
    record(&shared, &flight, &request, &response, fault.as_ref());
    pass(response.delay).await;
    match fault {
        Some(Action::DropBefore | Action::DropAfter) => Answer::Drop,
        Some(Action::Hang | Action::HangAfter) => hang(&shared).await,
        Some(Action::Limit { seconds }) => {
            let mut rendered = render(&response);
            rendered.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
            Answer::Reply(rendered)
        }
        _ => Answer::Reply(render(&response)),
    }
}

/// The call goes its way after its client is gone.
async fn take_effect_later(
    shared: Arc<Shared>,
    flight: InFlight,
    request: Request,
    pause: Duration,
) {
    pass(pause).await;
    let mut response = effect(&shared, &request, None).await;
    response.status = 0;
    shared.wake.notify_one();
    record(&shared, &flight, &request, &response, None);
}

fn take_out(value: &mut Value, fields: &[String]) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !fields.contains(key));
            map.values_mut().for_each(|value| take_out(value, fields));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| take_out(value, fields)),
        _ => {}
    }
}

/// Nothing until all connections are closed.
async fn hang(shared: &Shared) -> Answer {
    let mut close = shared.close.subscribe();
    // Either way there is nothing to say.
    let _ = close.changed().await;
    Answer::Drop
}

async fn effect(shared: &Shared, request: &Request, fault: Option<&Action>) -> Response {
    let fate = match fault {
        Some(Action::FailTask { text, with_effect }) => {
            Some(TaskFate { text: text.clone(), with_effect: *with_effect })
        }
        _ => None,
    };
    let began = Instant::now();
    loop {
        let pause = {
            let mut model = shared.model();
            let now = shared.clock.now();
            let mut response = model.handle_fated(request, now, fate.clone());
            let left = response.delay.saturating_sub(began.elapsed());
            if !response.blocked || left.is_zero() {
                if response.blocked {
                    response.delay = Duration::ZERO;
                }
                // Nobody sees the effect without the change, or the change undone before it came.
                if let Some(Action::ChangeAfter(change)) = fault {
                    model.change(change.clone());
                }
                return response;
            }
            let due = model.next_due().map_or(Duration::ZERO, |due| due.since(now));
            due.clamp(Duration::from_millis(1), left)
        };
        // The lock is given back when something else is due.
        pass(pause).await;
    }
}

async fn pass(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep_until(Instant::now() + duration).await;
    }
}

async fn hook(shared: &Shared, flight: &InFlight, request: &Request, response: Option<&Response>) {
    let hook = shared.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(hook) = hook else { return };
    hook(HookCall {
        when: if response.is_some() { When::After } else { When::Before },
        seq: flight.seq,
        method: request.method.to_string(),
        path: request.path.clone(),
        params: readable(&request.params),
        status: response.map(|response| response.status),
        effect: response.and_then(|response| response.effect.clone()),
    })
    .await;
}

fn record(
    shared: &Shared,
    flight: &InFlight,
    request: &Request,
    response: &Response,
    fault: Option<&Action>,
) {
    let entry = Entry {
        seq: flight.seq,
        at: flight.at,
        method: request.method.to_string(),
        path: request.path.clone(),
        endpoint: response.endpoint.to_owned(),
        params: readable(&request.params),
        status: response.status,
        reason: response.reason.clone().filter(|reason| !reason.is_empty()),
        effect: response.effect.clone(),
        fault: fault.map(|fault| format!("{fault:?}")),
    };
    shared.journal.lock().unwrap_or_else(PoisonError::into_inner).record(entry);
}
