//! Answers that are kept for a moment, so that many who ask the same at once ask once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::pve;

/// How long to wait for what somebody else reads. That may hang for a minute, and who waits has a place
/// that others need.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of asking.
#[derive(Debug)]
struct Held<V, E> {
    /// The latest answer, and when it was asked for.
    answer: Option<(Instant, V)>,
    /// How the latest attempt failed, and when.
    failure: Option<(Instant, E)>,
}

impl<V, E> Default for Held<V, E> {
    fn default() -> Self {
        Self { answer: None, failure: None }
    }
}

type Shared<V, E> = Arc<tokio::sync::Mutex<Held<V, E>>>;

/// Answers by what was asked.
#[derive(Debug)]
pub(super) struct Kept<K, V, E = pve::Error>(Mutex<BTreeMap<K, Shared<V, E>>>);

impl<K, V, E> Default for Kept<K, V, E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone, E: Clone> Kept<K, V, E> {
    /// The answer that is at most `age` old, read if there is none. Who asks while it is read waits
    /// for it and takes what comes of it, be it a failure: a node that hangs is asked once for all of
    /// them, and not once by each after the other. Who asks something else does not wait, and who
    /// asks after a failure asks anew. What takes somebody else long is not waited for: that is
    /// `awaited`.
    pub(super) async fn get(
        &self,
        key: K,
        age: Duration,
        awaited: impl FnOnce() -> E,
        read: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let came = Instant::now();
        let shared = {
            // Plain bookkeeping, which a panic elsewhere leaves good.
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits for those, and they are too old for anybody.
            all.retain(|_, answer| {
                Arc::strong_count(answer) > 1
                    || answer.try_lock().is_ok_and(
                        |held| matches!(&held.answer, Some((at, _)) if at.elapsed() < age),
                    )
            });
            Arc::clone(all.entry(key).or_default())
        };
        let Ok(mut held) = timeout(PATIENCE, shared.lock()).await else { return Err(awaited()) };
        if let Some((at, value)) = &held.answer
            && at.elapsed() < age
        {
            return Ok(value.clone());
        }
        if let Some((when, error)) = &held.failure
            && *when > came
        {
            return Err(error.clone());
        }
        let asked = Instant::now();
        match read().await {
            Ok(value) => {
                *held = Held { answer: Some((asked, value.clone())), failure: None };
                Ok(value)
            }
            Err(error) => {
                held.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures::future::join_all;

    use super::*;

    type Words = Kept<u8, u8, &'static str>;

    const fn late() -> &'static str {
        "somebody else waits for it"
    }

    #[tokio::test]
    async fn an_answer_is_given_again_until_it_is_too_old_and_a_failure_is_not() {
        let kept = Words::default();
        let age = Duration::from_mins(1);
        assert_eq!(kept.get(1, age, late, async || Err("down")).await, Err("down"));
        assert_eq!(kept.get(1, age, late, async || Ok(7)).await, Ok(7));
        assert_eq!(kept.get(1, age, late, async || Ok(8)).await, Ok(7));
        assert_eq!(kept.get(2, age, late, async || Ok(9)).await, Ok(9));
        assert_eq!(kept.get(1, Duration::ZERO, late, async || Ok(8)).await, Ok(8));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_node_that_fails_late_shares_its_failure() {
        let (kept, asked) = (Words::default(), AtomicUsize::new(0));
        let age = Duration::from_secs(10);
        let began = Instant::now();
        let hang = Duration::from_secs(3);
        let ask = |node| {
            let asked = &asked;
            kept.get(node, age, late, async move || {
                asked.fetch_add(1, Relaxed);
                tokio::time::sleep_until(Instant::now() + hang).await;
                Err("no answer in time")
            })
        };
        let all = join_all((0..10).map(|_| ask(1))).await;
        assert!(all.iter().all(|one| *one == Err("no answer in time")), "{all:?}");
        assert_eq!(asked.load(Relaxed), 1, "one asks for all");
        assert_eq!(began.elapsed(), hang, "nobody waits twice");
        assert_eq!(kept.get(1, age, late, async || Ok(7)).await, Ok(7), "the next one asks anew");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_keeps_a_place_for_long_behind_a_reading_that_hangs() {
        let kept = Words::default();
        let (age, hang) = (Duration::from_secs(10), Duration::from_mins(1));
        let began = Instant::now();
        let ask = async || {
            let read = async || {
                tokio::time::sleep_until(Instant::now() + hang).await;
                Err("no answer in time")
            };
            (kept.get(1, age, late, read).await, began.elapsed())
        };
        let all = join_all((0..10).map(|_| ask())).await;
        let (gave_up, asked): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.1 <= PATIENCE);
        assert_eq!(asked, [(Err("no answer in time"), hang)]);
        assert!(gave_up.iter().all(|one| one.0 == Err(late())), "{gave_up:?}");
    }
}
