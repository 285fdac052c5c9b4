//! What makes a pass needless: nothing has changed but by the pass before.
//!
//! Every write of the object comes back as a change of it. A pass that would only look at its own
//! work again costs calls to Proxmox, so it is left out; whatever else may have happened rings.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::decision::{Waiting, Wake};
use crate::hypervisor::{ObjectKey, Operation};

/// Machines for which something happened besides their own writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Bell(Arc<Mutex<HashSet<ObjectKey>>>);

impl Bell {
    /// Something happened.
    pub(super) fn ring(&self, key: ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    /// Whether something happened since this was asked last.
    pub(super) fn rang(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

/// What a pass ended with.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Version of the object as the pass left it.
    version: String,
    /// When the next one is due; none when only a change helps.
    due: Option<Instant>,
}

impl Rest {
    pub(super) fn new(version: String, wake: Wake) -> Self {
        let due = match wake {
            Wake::OnChange => None,
            // Timers are a little coarse.
            Wake::After(time) => Some(Instant::now() + time.saturating_sub(TICK)),
        };
        Self { version, due }
    }

    /// Whether the object is as the pass left it.
    pub(super) fn is_at(&self, version: &str) -> bool {
        self.version == version
    }

    /// What to go on waiting for at this time; none when the next pass is due.
    pub(super) fn goes_on(&self, now: Instant) -> Option<Wake> {
        match self.due {
            None => Some(Wake::OnChange),
            Some(due) if due > now => Some(Wake::After(due.duration_since(now) + TICK)),
            Some(_) => None,
        }
    }
}

const TICK: Duration = Duration::from_millis(5);

/// From this time on, times are spread.
const LONG: Duration = Duration::from_secs(5);

/// Long times, and up to a fifth more by chance: machines that waited for the same do not come back
/// together.
pub(super) fn spread(wake: Wake, chance: u64) -> Wake {
    match wake {
        Wake::After(time) if time >= LONG => {
            let percent = u32::try_from(chance % 20).unwrap_or(0);
            Wake::After(time + time * percent / 100)
        }
        wake => wake,
    }
}

/// Some number.
pub(super) fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether a wait is so short as a rule that telling of it costs more than it tells. A clone is told
/// at once: its task is what a restart looks for.
pub(super) fn is_brief(waiting: &Waiting) -> bool {
    matches!(
        waiting,
        Waiting::Task { operation, trouble: None, .. }
            if !matches!(operation, Operation::Clone | Operation::Recorded)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_left_out_for_its_own_write_until_its_time_comes() {
        let rest = Rest::new("7".to_owned(), Wake::seconds(10));
        let now = Instant::now();
        assert!(rest.is_at("7") && !rest.is_at("8"));
        assert!(matches!(rest.goes_on(now), Some(Wake::After(_))));
        assert_eq!(rest.goes_on(now + Duration::from_secs(10)), None);
        let rest = Rest::new("7".to_owned(), Wake::OnChange);
        assert_eq!(rest.goes_on(now), Some(Wake::OnChange));
    }

    #[test]
    fn a_bell_is_heard_once() {
        let (bell, key) =
            (Bell::default(), ObjectKey { namespace: "lab".to_owned(), name: "w-1".to_owned() });
        assert!(!bell.rang(&key));
        bell.ring(key.clone());
        assert!(bell.rang(&key));
        assert!(!bell.rang(&key));
    }
}
