//! `/metrics`.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::metrics::{self, Metrics};

pub(super) fn router(metrics: Metrics) -> Router {
    let text = async move || ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text());
    Router::new().route("/metrics", get(text))
}
