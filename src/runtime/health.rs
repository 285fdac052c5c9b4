//! `/healthz` and `/readyz`.
//!
//! Ready does not mean leading: a Deployment ends the old pod only when the new one is ready, and
//! the old one leads until then. It means that the API server was reached and that the webhooks,
//! if any, have their certificate.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::sync::watch;

/// What readiness waits for.
#[derive(Debug, Clone)]
pub(super) struct Readiness {
    /// The API server answered.
    pub(super) started: watch::Receiver<bool>,
    /// The webhooks have a certificate; none without webhooks.
    pub(super) webhooks: Option<watch::Receiver<bool>>,
}

impl Readiness {
    fn answer(&self) -> (StatusCode, &'static str) {
        if !*self.started.borrow() {
            (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet\n")
        } else if self.webhooks.as_ref().is_some_and(|ready| !*ready.borrow()) {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the admission webhooks have no certificate; see the log, or start with \
                 --enable-webhooks=false\n",
            )
        } else {
            (StatusCode::OK, "ok\n")
        }
    }
}

pub(super) fn router(readiness: Readiness) -> Router {
    let ready = get(async move || readiness.answer());
    // Go's handlers answer below their path as well.
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/healthz/", get(async || "ok\n"))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", ready.clone())
        .route("/readyz/", ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_the_api_server_and_for_the_certificate_of_the_webhooks() {
        let (started, webhooks) = (watch::Sender::new(false), watch::Sender::new(false));
        let with = Readiness { started: started.subscribe(), webhooks: Some(webhooks.subscribe()) };
        let without = Readiness { webhooks: None, ..with.clone() };
        assert_eq!(without.answer().0, StatusCode::SERVICE_UNAVAILABLE);
        started.send_replace(true);
        assert_eq!(without.answer().0, StatusCode::OK);
        let (status, text) = with.answer();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("--enable-webhooks=false"));
        webhooks.send_replace(true);
        assert_eq!(with.answer().0, StatusCode::OK);
    }
}
