use std::sync::atomic::{AtomicU32, Ordering};

/// How many batches in a row were new, each message of them.
///
/// A claim of messages that are expected to be new costs less, and the whole
/// transaction if one of them is not. So nothing is expected at the beginning,
/// where what was read before comes again, nor of a topic whose producers repeat
/// themselves.
///
/// The lanes of a partition count together, and some count may be lost between
/// them: what is expected changes the cost of a claim, and not its answer.
#[derive(Debug, Default)]
pub struct Streak(AtomicU32);

/// So many are a streak. If one batch in ten repeats a message, then one in fifty
/// is claimed twice.
const LONG: u32 = 16;

// ===== impl Streak =====

impl Streak {
    /// Whether the next batch is expected to be new.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LONG
    }

    /// Counts a batch.
    pub fn note(&self, is_new: bool) {
        let length = if is_new { self.0.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.0.store(length, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG, Streak};

    #[test]
    fn nothing_is_expected_before_a_streak_nor_after_its_end() {
        let streak = Streak::default();
        for _ in 0..2 {
            for _ in 0..LONG {
                assert!(!streak.is_long());
                streak.note(true);
            }
            assert!(streak.is_long());
            streak.note(true);
            assert!(streak.is_long());
            streak.note(false);
        }
    }
}
