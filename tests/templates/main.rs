//! Every cluster template and ClusterClass: rendered by clusterctl, admitted by an API server with
//! Cluster API's own definitions and webhooks and with ours, documented as it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admitted;
mod documented;
mod flatcar;
mod stage;
mod values;
