//! Answers that are kept for a moment, so that many who ask the same at once ask once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// An answer, and when it was asked for.
type Answer<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// Answers by what was asked.
#[derive(Debug)]
pub(super) struct Kept<K, V>(Mutex<BTreeMap<K, Answer<V>>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> Kept<K, V> {
    /// The answer that is at most `age` old, read if there is none. Who asks while it is read waits
    /// for it; who asks something else does not. A failure is kept by nobody.
    pub(super) async fn get<E>(
        &self,
        key: K,
        age: Duration,
        read: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let answer = {
            // Plain bookkeeping, which a panic elsewhere leaves good.
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits for those, and they are too old for anybody.
            all.retain(|_, answer| {
                Arc::strong_count(answer) > 1
                    || answer
                        .try_lock()
                        .is_ok_and(|held| held.as_ref().is_some_and(|(at, _)| at.elapsed() < age))
            });
            Arc::clone(all.entry(key).or_default())
        };
        let mut held = answer.lock().await;
        if let Some((at, value)) = &*held
            && at.elapsed() < age
        {
            return Ok(value.clone());
        }
        let asked = Instant::now();
        let value = read().await?;
        *held = Some((asked, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_given_again_until_it_is_too_old_and_a_failure_is_not() {
        let kept: Kept<u8, u8> = Kept::default();
        let age = Duration::from_mins(1);
        assert_eq!(kept.get(1, age, async || Err("down")).await, Err("down"));
        assert_eq!(kept.get(1, age, async || Ok::<_, &str>(7)).await, Ok(7));
        assert_eq!(kept.get(1, age, async || Ok::<_, &str>(8)).await, Ok(7));
        assert_eq!(kept.get(2, age, async || Ok::<_, &str>(9)).await, Ok(9));
        assert_eq!(kept.get(1, Duration::ZERO, async || Ok::<_, &str>(8)).await, Ok(8));
    }
}
