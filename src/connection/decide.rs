//! What a ProxmoxConnection is worth. Pure: the same facts lead to the same verdict.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::facts::{Answer, Facts, Probe};
use crate::api::conditions::{Severity, State};
use crate::api::{MissingPrivilege, ObservedSecret, reasons};
use crate::connections::Ailment;
use crate::fault::{Class, Fault};
use crate::preflight::{Lack, Scope, missing, needs};

/// A regular look: privileges and clocks change without a word.
const REGULAR: Duration = Duration::from_mins(5);
/// Pause before the first repetition of something that failed …
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// … and between later ones.
const RETRY_LAST: Duration = Duration::from_mins(1);

/// Clocks that differ by more than this are told of: Proxmox takes no ticket from further ahead.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Privileges that are named in a message; of more, the number is told.
const NAMED: usize = 8;

/// What is said of a connection.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    /// Whether it works.
    pub(super) ready: State,
    /// Every other condition; none takes away what was said before.
    pub(super) conditions: Vec<(&'static str, Option<State>)>,
    /// Version of Proxmox VE; none keeps the one that was known.
    pub(super) version: Option<String>,
    /// The address that answers.
    pub(super) address: Option<String>,
    /// Privileges that are missing.
    pub(super) missing: Vec<MissingPrivilege>,
    /// The Secrets that were read.
    pub(super) secrets: Vec<ObservedSecret>,
}

/// Judges.
pub(super) fn verdict(facts: &Facts) -> Verdict {
    let mut said = Said::default();
    let mut verdict = Verdict {
        ready: State::True,
        conditions: Vec::new(),
        version: None,
        address: None,
        missing: Vec::new(),
        secrets: facts.secrets.clone(),
    };
    match &facts.endpoint {
        Err(fault) => verdict.ready = without_endpoint(fault),
        Ok(Probe { version: Err((ailment, fault)), insecure, .. }) => {
            said.ails(*ailment, fault, insecure.as_deref());
            verdict.ready = failed(*ailment, fault);
        }
        Ok(Probe { version: Ok(answer), insecure, address }) => {
            let lacks = lacks(answer);
            said.answers(answer, lacks.as_deref(), insecure.as_deref());
            if let Some(state @ State::False { .. }) = &said.permissions {
                verdict.ready = state.clone();
            }
            verdict.version = Some(answer.version.clone());
            verdict.address = Some(address.clone());
            verdict.missing = lacks.into_iter().flatten().map(privilege).collect();
        }
    }
    verdict.conditions = vec![
        (reasons::ENDPOINT_REACHABLE, said.reachable),
        (reasons::CERTIFICATE_TRUSTED, said.trusted),
        (reasons::CREDENTIALS_ACCEPTED, said.accepted),
        (reasons::PERMISSIONS_SUFFICIENT, said.permissions),
        (reasons::CLOCK_IN_SYNC, said.clock),
    ];
    verdict
}

/// The conditions beside `Ready`.
#[derive(Debug, Default)]
struct Said {
    reachable: Option<State>,
    trusted: Option<State>,
    accepted: Option<State>,
    permissions: Option<State>,
    clock: Option<State>,
}

impl Said {
    fn ails(&mut self, ailment: Ailment, fault: &Fault, insecure: Option<&str>) {
        let state = Some(failed(ailment, fault));
        match ailment {
            Ailment::Down | Ailment::NotProxmox | Ailment::NoQuorum | Ailment::Failing => {
                self.reachable = state;
            }
            Ailment::NotTrusted | Ailment::NotTrustedNow => {
                self.reachable = Some(State::True);
                self.trusted = state;
            }
            Ailment::Refused | Ailment::Expired | Ailment::Disabled | Ailment::TokenUnknown => {
                self.reachable = Some(State::True);
                self.trusted = Some(trusted(insecure));
                self.accepted = state;
            }
            Ailment::NotPermitted => {
                self.reachable = Some(State::True);
                self.trusted = Some(trusted(insecure));
                self.accepted = Some(State::True);
                self.permissions = state;
            }
        }
    }

    fn answers(
        &mut self,
        answer: &Answer,
        lacks: Result<&[Lack], &String>,
        insecure: Option<&str>,
    ) {
        self.reachable = Some(State::True);
        self.trusted = Some(trusted(insecure));
        self.accepted = Some(State::True);
        self.permissions = Some(match lacks {
            Ok([]) => State::True,
            Ok(lacks) => State::not(Severity::Error, reasons::PRIVILEGES_MISSING, listing(lacks)),
            Err(why) => State::Unknown {
                reason: reasons::UNKNOWN,
                message: format!("the privileges are not known: {why}"),
            },
        });
        self.clock = answer.ahead.map(clock);
    }
}

fn without_endpoint(fault: &Fault) -> State {
    let message = fault.message.clone();
    match (fault.class, fault.reason) {
        (Class::Transient, _) => State::Unknown { reason: reasons::UNKNOWN, message },
        (_, Some(reason)) => State::not(Severity::Error, reason, message),
        _ => State::not(Severity::Error, reasons::INVALID_CONNECTION, message),
    }
}

fn failed(ailment: Ailment, fault: &Fault) -> State {
    State::not(Severity::Error, reason(ailment), fault.message.clone())
}

const fn reason(ailment: Ailment) -> &'static str {
    match ailment {
        Ailment::Down => reasons::ENDPOINT_DOWN,
        Ailment::NotTrusted => reasons::CERTIFICATE_NOT_TRUSTED,
        Ailment::NotTrustedNow => reasons::CERTIFICATE_NOT_VALID_NOW,
        Ailment::Refused => reasons::CREDENTIALS_REFUSED,
        Ailment::Expired => reasons::CREDENTIALS_EXPIRED,
        Ailment::Disabled => reasons::USER_DISABLED,
        Ailment::TokenUnknown => reasons::TOKEN_UNKNOWN,
        Ailment::NotPermitted => reasons::PRIVILEGES_MISSING,
        Ailment::NotProxmox => reasons::NOT_PROXMOX,
        Ailment::NoQuorum => reasons::NO_QUORUM,
        Ailment::Failing => reasons::PROXMOX_FAILING,
    }
}

fn trusted(insecure: Option<&str>) -> State {
    match insecure {
        None => State::True,
        Some(ways) => State::not(
            Severity::Warning,
            reasons::CERTIFICATE_NOT_CHECKED,
            format!(
                "any certificate is believed, so anybody on the way can read the credentials. {ways}"
            ),
        ),
    }
}

/// `VM.Clone on /vms` as it is told, and what gives it.
fn listing(lacks: &[Lack]) -> String {
    let named: Vec<String> = lacks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = lacks.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "the credentials lack {}{more}: grant a role with them on these paths (Datacenter, \
         Permissions), to the user and, with privilege separation, to the token itself; \
         status.missingPrivileges lists all",
        named.join(", ")
    )
}

fn clock(ahead: SignedDuration) -> State {
    if ahead.abs() <= SKEW {
        return State::True;
    }
    let (seconds, way) =
        (ahead.abs().as_secs(), if ahead.is_negative() { "behind" } else { "ahead of" });
    State::not(
        Severity::Warning,
        reasons::CLOCK_SKEW,
        format!(
            "the clock of Proxmox is {seconds} s {way} that of the manager's node: tokens and \
             certificates are judged by it, and tickets of one node may be refused by another; let \
             chrony or systemd-timesyncd set both"
        ),
    )
}

/// What the credentials lack for machines of any kind: which templates, storages and bridges they
/// will use, machines only tell later.
fn lacks(answer: &Answer) -> Result<Vec<Lack>, String> {
    let held = answer.permissions.as_ref().map_err(Clone::clone)?;
    let release = answer.version.split('.').next().and_then(|major| major.parse().ok());
    let release = release.ok_or_else(|| format!("no release of Proxmox VE: {}", answer.version))?;
    Ok(missing(held, &needs(release, &Scope::default())))
}

fn privilege(lack: Lack) -> MissingPrivilege {
    let Lack { path, privilege, needed_for } = lack;
    MissingPrivilege { path, privilege, needed_for }
}

/// When to look again, unless woken; `before` is when `Ready` last changed.
pub(super) fn wake(ready: &State, before: Option<Timestamp>, now: Timestamp) -> Duration {
    if *ready == State::True {
        return REGULAR;
    }
    let age = before.map_or(0, |before| now.as_second().saturating_sub(before.as_second()));
    Duration::from_secs(u64::try_from(age).unwrap_or_default()).clamp(RETRY_FIRST, RETRY_LAST)
}

#[cfg(test)]
mod tests;
