//! The endpoints, a file for each family. Every family has its table of routes.

#![expect(clippy::unnecessary_wraps, reason = "the tables want one signature of handlers")]

mod access;
mod agent;
mod clone;
mod cluster;
mod config;
mod ha;
mod node;
mod pool;
mod power;
mod snapshot;
mod storage;
mod task;
mod upload;
mod vm;

use super::route::{Handler, Need, Route};
use super::schema::{Field, Schema};

/// Every endpoint.
pub(crate) const ROUTES: &[&[Route]] = &[
    access::ROUTES,
    agent::ROUTES,
    clone::ROUTES,
    cluster::ROUTES,
    config::ROUTES,
    ha::ROUTES,
    node::ROUTES,
    pool::ROUTES,
    power::ROUTES,
    snapshot::ROUTES,
    storage::ROUTES,
    task::ROUTES,
    upload::ROUTES,
    vm::ROUTES,
];

const fn route(
    method: &'static str,
    pattern: &'static str,
    need: Need,
    fields: &'static [Field],
    run: Handler,
) -> Route {
    Route { method, pattern, need, schema: Schema::Fields(fields), run }
}

const fn get(pattern: &'static str, need: Need, fields: &'static [Field], run: Handler) -> Route {
    route("GET", pattern, need, fields, run)
}

const fn post(pattern: &'static str, need: Need, fields: &'static [Field], run: Handler) -> Route {
    route("POST", pattern, need, fields, run)
}
