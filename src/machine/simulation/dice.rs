//! Random numbers that repeat.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `sides - 1`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides.max(1)
    }

    /// From `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll(high - low + 1)
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap_or_default()
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }
}
