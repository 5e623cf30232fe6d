use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the lanes of a partition know of it: whether it is entered, and whether
/// the next batch is expected to be new.
///
/// A claim of messages that are expected to be new costs less. If one of them is
/// not, the transaction is lost, and the claim is made again. So nothing is
/// expected at the beginning, where what was read before comes again, nor of a
/// topic whose producers repeat themselves.
///
/// Some count may be lost between the lanes: what is expected changes the cost of
/// a claim, and not its answer.
#[derive(Debug, Default)]
pub struct Outlook {
    entered: AtomicBool,
    // How many batches in a row were new, each message of them.
    streak: AtomicU32,
}

/// So many are a streak. Of a topic of which one batch in ten repeats a message,
/// one in fifty is claimed twice; at worst, one in seventeen.
const STREAK: u32 = 16;

// ===== impl Outlook =====

impl Outlook {
    /// Whether the inbox knows the partition.
    #[must_use]
    pub fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }

    /// Notes whether it does.
    pub fn set_entered(&self, entered: bool) {
        self.entered.store(entered, Ordering::Release);
    }

    /// Whether the next batch is expected to be new.
    #[must_use]
    pub fn expects_news(&self) -> bool {
        self.streak.load(Ordering::Relaxed) >= STREAK
    }

    /// Counts a batch, or a claim that failed.
    pub fn met(&self, is_new: bool) {
        let streak = self.streak.load(Ordering::Relaxed);
        self.streak.store(if is_new { streak.saturating_add(1) } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Outlook;

    #[test]
    fn news_are_expected_after_sixteen_in_a_row_and_until_there_are_none() {
        let outlook = Outlook::default();
        for _ in 0..2 {
            for _ in 0..16 {
                assert!(!outlook.expects_news());
                outlook.met(true);
            }
            assert!(outlook.expects_news());
            outlook.met(true);
            assert!(outlook.expects_news());
            outlook.met(false);
        }
    }
}
