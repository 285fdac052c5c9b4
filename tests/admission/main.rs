//! The admission webhooks behind a real apiserver: registered by URL, asked over HTTPS, their
//! refusals as the user sees them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod webhooks;
