//! The fault script: which call goes wrong, how, and at which time it is made.

use serde::{Deserialize, Serialize};

use crate::model::Change;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// This answer, and nothing else happens.
    Reply {
        /// HTTP status code.
        status: u16,
        /// The text of the status line.
        text: String,
    },
    /// Nothing happens, and the answer is a 429 that asks to be left alone, as of a proxy.
    Limit {
        /// For so many seconds.
        seconds: u32,
    },
    /// The call takes effect, and this is the answer (a 596 whose operation goes on).
    ReplyAfter {
        /// HTTP status code.
        status: u16,
        /// The text of the status line.
        text: String,
    },
    /// The connection closes before anything happens.
    DropBefore,
    /// The call takes effect, the connection closes without an answer.
    DropAfter,
    /// The connection closes at once, and the call takes effect so much later.
    DropThenEffect {
        /// Milliseconds.
        millis: u64,
    },
    /// The call takes effect, and the answer has this `data`, as of another implementation.
    AnswerWith {
        /// The `data`.
        data: serde_json::Value,
    },
    /// The answer lacks these fields, at whatever depth.
    AnswerWithout {
        /// Their names.
        fields: Vec<String>,
    },
    /// Never an answer, never an effect.
    Hang,
    /// The call takes effect, and never an answer.
    HangAfter,
    /// The call is answered so much later.
    Delay {
        /// Milliseconds.
        millis: u64,
    },
    /// The task the call starts fails with this text.
    #[serde(rename_all = "kebab-case")]
    FailTask {
        /// The exit text.
        text: String,
        /// Whether the work is done all the same.
        with_effect: bool,
    },
    /// Something else happens first; the call then goes its way.
    Change(Change),
    /// The call goes its way; something else happens with its effect, before it is answered.
    ChangeAfter(Change),
}

/// One line of the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// `GET`, `POST` …; any if empty.
    #[serde(default)]
    pub method: String,
    /// Path below `/api2/json`; `*` stands for one part, `**` for all the rest.
    pub path: String,
    /// From which matching call on, counted from 1.
    #[serde(default = "one")]
    pub from: u64,
    /// How many of them; all if none.
    #[serde(default)]
    pub times: Option<u64>,
    /// What goes wrong.
    pub action: Action,
    /// Matching calls so far.
    #[serde(default)]
    pub seen: u64,
}

fn one() -> u64 {
    1
}

impl FaultRule {
    /// A rule for the next matching call.
    pub fn once(method: &str, path: &str, action: Action) -> Self {
        Self { times: Some(1), ..Self::always(method, path, action) }
    }

    /// A rule for every matching call.
    pub fn always(method: &str, path: &str, action: Action) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, from: 1, times: None, action, seen: 0 }
    }

    /// A rule for the nth matching call, counted from 1.
    pub fn nth(nth: u64, method: &str, path: &str, action: Action) -> Self {
        Self { from: nth, ..Self::once(method, path, action) }
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        (self.method.is_empty() || self.method == method) && path_matches(&self.path, path)
    }
}

/// Whether a path is of a pattern with `*` and `**`.
pub fn path_matches(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    for wanted in pattern.split('/').filter(|part| !part.is_empty()) {
        if wanted == "**" {
            return true;
        }
        match parts.next() {
            Some(part) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// The script.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<FaultRule>,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&mut self, rule: FaultRule) {
        self.rules.push(rule);
    }

    /// Forgets all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// The rules with how often they matched.
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// What goes wrong with this call: the first rule whose turn it is; all that match count it.
    pub fn decide(&mut self, method: &str, path: &str) -> Option<Action> {
        let mut chosen = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.matches(method, path)) {
            rule.seen += 1;
            let in_turn = rule.seen >= rule.from
                && rule.times.is_none_or(|times| rule.seen < rule.from.saturating_add(times));
            if in_turn && chosen.is_none() {
                chosen = Some(rule.action.clone());
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_strike_at_their_turn() {
        let mut faults = Faults::default();
        faults.add(FaultRule::nth(2, "POST", "/nodes/*/qemu/*/clone", Action::DropAfter));
        let path = "/nodes/pve1/qemu/9000/clone";
        let turns: Vec<bool> = (0..4).map(|_| faults.decide("POST", path).is_some()).collect();
        assert_eq!(turns, [false, true, false, false]);
        assert_eq!(faults.decide("GET", path), None);
        assert!(path_matches("/nodes/**", "/nodes/pve1/status"));
        assert!(!path_matches("/nodes/*", "/nodes/pve1/status"));
    }
}
