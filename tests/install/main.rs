//! The three ways to install the provider, each with the tools that people use for it, against a
//! real API server; and what they install, looked at by itself.
//!
//! Nodes are what is missing: `pod` runs the manager as the rendered Deployment says, and
//! `stand_ins` does what cert-manager and kube-proxy would do. The commands are those of
//! `docs/install.md`, as they stand there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "tests read PATH and hand it on")]

mod chart;
mod clusterctl;
mod docs;
mod image;
mod kubectl;
mod manifests;
mod operator;
mod pod;
mod site;
mod stand_ins;
