//! The algebra of conditions: from what is said now and what was written before to what is written
//! next. Pure: time is an argument.
//!
//! One model, [`State`], is rendered for both generations of Cluster API's contract: v1beta1
//! conditions with a severity in `status.conditions`, and those of `metav1` in
//! `status.v1beta2.conditions`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reasons;
use super::schema::MetaConditionSchema;

/// A condition of Cluster API's v1beta1 contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_: String,

    /// `True`, `False` or `Unknown`.
    pub status: String,

    /// How bad it is that the condition is False: `Error` needs somebody to act, `Warning` is tried
    /// again by itself, `Info` is a step on the way. Not set otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub severity: Option<String>,

    /// When the condition last changed in status, severity, reason or message.
    pub last_transition_time: Time,

    /// Why the condition is as it is, in one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub reason: Option<String>,

    /// Why the condition is as it is, in a sentence that names the object and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub message: Option<String>,
}

/// Conditions of Cluster API's v1beta2 contract.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct V1Beta2Conditions {
    /// Conditions: `Ready`, `Paused` and those that `Ready` sums up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        with = "Vec<MetaConditionSchema>",
        length(max = 32),
        extend("x-kubernetes-list-type" = "map"),
        extend("x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<MetaCondition>,
}

/// How bad it is that a condition is False; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Somebody has to act.
    Error,
    /// It is tried again by itself.
    Warning,
    /// A step on the way.
    Info,
}

impl Severity {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }
}

/// What is said by a condition, without type and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// All is well.
    True,
    /// It is not (yet).
    False {
        /// How bad that is.
        severity: Severity,
        /// Why, in one word.
        reason: &'static str,
        /// Why, in a sentence; may be empty.
        message: String,
    },
    /// Nobody can tell.
    Unknown {
        /// Why, in one word.
        reason: &'static str,
        /// Why, in a sentence; may be empty.
        message: String,
    },
}

impl State {
    /// A condition that is False.
    pub fn not(severity: Severity, reason: &'static str, message: impl Into<String>) -> Self {
        Self::False { severity, reason, message: message.into() }
    }

    /// A condition that is False as a step on the way.
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self::not(Severity::Info, reason, message)
    }

    /// The worse, the smaller, in Cluster API's order: False by severity, True, Unknown.
    const fn rank(&self) -> u8 {
        match self {
            Self::False { severity: Severity::Error, .. } => 0,
            Self::False { severity: Severity::Warning, .. } => 1,
            Self::False { severity: Severity::Info, .. } => 2,
            Self::True => 3,
            Self::Unknown { .. } => 4,
        }
    }

    const fn status(&self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False { .. } => "False",
            Self::Unknown { .. } => "Unknown",
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::True => None,
            Self::False { reason, .. } | Self::Unknown { reason, .. } => Some(reason),
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::True => "",
            Self::False { message, .. } | Self::Unknown { message, .. } => message,
        }
    }
}

/// A condition to be written.
pub type Wanted = (&'static str, State);

/// The state that sums up others: the worst of them, the first of equals. True of none.
pub fn summary(wanted: &[Wanted]) -> State {
    wanted
        .iter()
        .map(|(_, state)| state)
        .min_by_key(|state| state.rank())
        .cloned()
        .unwrap_or(State::True)
}

/// The v1beta1 conditions to write: `Ready` as the summary of `wanted`, those of `wanted`, and
/// whatever others wrote. `Ready` comes first, the rest by the alphabet.
///
/// A condition that says what it said before keeps its time.
pub fn v1beta1(old: &[Condition], wanted: &[Wanted], now: Timestamp) -> Vec<Condition> {
    let ready = (reasons::READY, summary(wanted));
    let mut all: Vec<Condition> = old.to_vec();
    for (type_, state) in std::iter::once(&ready).chain(wanted) {
        set(&mut all, condition(type_, state, now));
    }
    all.sort_by(|a, b| order(&a.type_).cmp(&order(&b.type_)));
    all
}

/// Puts a condition into a list: in place of the one of its type, unless that says the same.
pub fn set(conditions: &mut Vec<Condition>, new: Condition) {
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) if says_the_same(old, &new) => {}
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Sets a condition that `Ready` does not sum up, or takes it away.
pub fn beside(conditions: &mut Vec<Condition>, type_: &str, state: Option<&State>, now: Timestamp) {
    match state {
        Some(state) => set(conditions, condition(type_, state, now)),
        None => conditions.retain(|condition| condition.type_ != type_),
    }
    conditions.sort_by(|a, b| order(&a.type_).cmp(&order(&b.type_)));
}

/// The same for the v1beta2 contract, and for kinds that have no other.
pub fn beside_v1beta2(
    conditions: &mut Vec<MetaCondition>,
    type_: &str,
    state: Option<&State>,
    generation: Option<i64>,
    now: Timestamp,
) {
    match state {
        Some(state) => set_v1beta2(conditions, meta_condition(type_, state, generation, now)),
        None => conditions.retain(|condition| condition.type_ != type_),
    }
    conditions.sort_by(|a, b| order(&a.type_).cmp(&order(&b.type_)));
}

/// A v1beta1 condition as of `now`.
pub fn condition(type_: &str, state: &State, now: Timestamp) -> Condition {
    let severity = match state {
        State::False { severity, .. } => Some(severity.as_str().to_owned()),
        State::True | State::Unknown { .. } => None,
    };
    Condition {
        type_: type_.to_owned(),
        status: state.status().to_owned(),
        severity,
        last_transition_time: whole_seconds(now),
        reason: state.reason().map(ToOwned::to_owned),
        message: Some(clipped(state.message(), 10240)).filter(|text| !text.is_empty()),
    }
}

/// Whether two conditions differ in nothing but time.
pub fn says_the_same(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.severity == b.severity
        && a.reason == b.reason
        && a.message == b.message
}

/// The conditions of `new` that say something else than in `old`, or are not there.
pub fn changed<'a>(old: &'a [Condition], new: &'a [Condition]) -> Vec<&'a Condition> {
    let known = |condition: &Condition| old.iter().any(|other| says_the_same(other, condition));
    new.iter().filter(|condition| !known(condition)).collect()
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The v1beta2 conditions to write: `Ready` as the summary of `wanted`, those of `wanted`, `Paused`,
/// and whatever others wrote. `Ready` comes first and `Paused` last, the rest by the alphabet.
///
/// `generation` is the object's `metadata.generation`. A condition keeps its time while its status
/// stays the same, which is `metav1`'s rule and not that of v1beta1.
pub fn v1beta2(
    old: &[MetaCondition],
    wanted: &[Wanted],
    paused: bool,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<MetaCondition> {
    let ready = (reasons::READY, summary(wanted));
    let mut all: Vec<MetaCondition> = old.to_vec();
    for (type_, state) in std::iter::once(&ready).chain(wanted) {
        set_v1beta2(&mut all, meta_condition(type_, state, generation, now));
    }
    set_v1beta2(&mut all, paused_condition(paused, generation, now));
    all.sort_by(|a, b| order(&a.type_).cmp(&order(&b.type_)));
    all
}

/// The v1beta2 conditions of an object of which nothing new is said: what was said before, with
/// `Paused` brought up to date.
///
/// Once there are v1beta2 conditions at all, Cluster API looks for `Ready` nowhere else; so where
/// nothing was said of it yet, it is Unknown.
pub fn v1beta2_paused(
    old: &[MetaCondition],
    paused: bool,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<MetaCondition> {
    let mut all: Vec<MetaCondition> = old.to_vec();
    if !all.iter().any(|condition| condition.type_ == reasons::READY) {
        let state = State::Unknown {
            reason: if paused { reasons::PAUSED } else { reasons::UNKNOWN },
            message: String::new(),
        };
        all.push(meta_condition(reasons::READY, &state, generation, now));
    }
    set_v1beta2(&mut all, paused_condition(paused, generation, now));
    all.sort_by(|a, b| order(&a.type_).cmp(&order(&b.type_)));
    all
}

fn set_v1beta2(conditions: &mut Vec<MetaCondition>, new: MetaCondition) {
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) if old.status == new.status => {
            let last_transition_time = old.last_transition_time.clone();
            *old = MetaCondition { last_transition_time, ..new };
        }
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

fn meta_condition(
    type_: &str,
    state: &State,
    generation: Option<i64>,
    now: Timestamp,
) -> MetaCondition {
    MetaCondition {
        type_: type_.to_owned(),
        status: state.status().to_owned(),
        reason: state.reason().unwrap_or(reasons::READY_REASON).to_owned(),
        message: clipped(state.message(), 32768),
        observed_generation: generation,
        last_transition_time: whole_seconds(now),
    }
}

fn paused_condition(paused: bool, generation: Option<i64>, now: Timestamp) -> MetaCondition {
    let (status, reason) =
        if paused { ("True", reasons::PAUSED) } else { ("False", reasons::NOT_PAUSED) };
    MetaCondition {
        type_: reasons::PAUSED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: generation,
        last_transition_time: whole_seconds(now),
    }
}

/// `Ready` first, `Paused` last.
fn order(type_: &str) -> (u8, &str) {
    match type_ {
        reasons::READY => (0, type_),
        reasons::PAUSED => (2, type_),
        _ => (1, type_),
    }
}

/// The API server stores no fractions; with one, what is written would differ from what is read.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// At most `limit` characters, which is what the CRD admits.
fn clipped(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests;
