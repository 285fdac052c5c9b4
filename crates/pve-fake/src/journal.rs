//! Every call, in order, with what it did. Secrets are left out.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::model::{Param, Params};

const SECRETS: &[&str] = &["password", "cipassword", "otp"];
/// Older entries are dropped; a demo that runs for days must not grow for ever.
const KEPT: usize = 100_000;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Number of the call since the start, from 1.
    pub seq: u64,
    /// Milliseconds since the epoch when it came in.
    pub at: u64,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// Path below `/api2/json`.
    pub path: String,
    /// The endpoint's pattern; empty for an unknown path.
    pub endpoint: String,
    /// Parameters without secrets.
    pub params: BTreeMap<String, String>,
    /// Zero if nothing was answered.
    pub status: u16,
    /// The text of the status line, if it was not the code's usual one.
    pub reason: Option<String>,
    /// A UPID, or what was done in a few words.
    pub effect: Option<String>,
    /// The fault that struck.
    pub fault: Option<String>,
}

impl Entry {
    /// Whether the call did something.
    pub fn has_effect(&self) -> bool {
        self.effect.is_some()
    }
}

/// The calls so far. A clone is a picture of the moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Journal {
    entries: VecDeque<Entry>,
    counts: BTreeMap<String, u64>,
    started: u64,
    in_flight: usize,
    max_in_flight: usize,
    node_in_flight: BTreeMap<String, usize>,
    max_node_in_flight: BTreeMap<String, usize>,
}

impl Journal {
    /// Every call, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Calls of a method (any if empty) whose path is of a pattern with `*` and `**`.
    pub fn calls<'a>(
        &'a self,
        method: &'a str,
        pattern: &'a str,
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| {
            (method.is_empty() || entry.method == method)
                && crate::fault::path_matches(pattern, &entry.path)
        })
    }

    /// How many of them.
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        self.calls(method, pattern).count()
    }

    /// Answered calls by method and endpoint pattern, all since the start.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Calls that changed something, as one line each: what differential tests compare.
    pub fn writes(&self) -> Vec<String> {
        let writes = self.entries.iter().filter(|entry| entry.method != "GET");
        writes.map(|entry| format!("{} {} {}", entry.method, entry.path, entry.status)).collect()
    }

    /// Number of calls since the start.
    pub fn total(&self) -> u64 {
        self.started
    }

    /// The most calls that were under way at one time.
    pub fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    /// The same for calls to one node's paths.
    pub fn max_in_flight_of(&self, node: &str) -> usize {
        self.max_node_in_flight.get(node).copied().unwrap_or(0)
    }

    pub(crate) fn begin(&mut self, path: &str) -> u64 {
        self.started += 1;
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
        if let Some(node) = node_of(path) {
            let count = self.node_in_flight.entry(node.to_owned()).or_default();
            *count += 1;
            let peak = self.max_node_in_flight.entry(node.to_owned()).or_default();
            *peak = (*peak).max(*count);
        }
        self.started
    }

    pub(crate) fn end(&mut self, path: &str) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(count) = node_of(path).and_then(|node| self.node_in_flight.get_mut(node)) {
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn record(&mut self, entry: Entry) {
        let key = format!("{} {}", entry.method, entry.endpoint);
        *self.counts.entry(key).or_default() += 1;
        if self.entries.len() >= KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

fn node_of(path: &str) -> Option<&str> {
    path.strip_prefix("/nodes/")?.split('/').next().filter(|node| !node.is_empty())
}

/// Parameters as text, secrets blotted out.
pub(crate) fn readable(params: &Params) -> BTreeMap<String, String> {
    let text = |(key, value): (&String, &Param)| {
        let shown = match value {
            _ if SECRETS.contains(&key.as_str()) => "…".to_owned(),
            Param::One(text) => text.clone(),
            Param::Many(list) => list.join(" "),
            Param::Nested => "{…}".to_owned(),
        };
        (key.clone(), shown)
    };
    params.0.iter().map(text).collect()
}
