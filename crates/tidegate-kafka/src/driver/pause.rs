//! How long a partition that stopped waits before it is tried again.

use std::time::Duration;

/// A pause that doubles while it does not help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    first: Duration,
    longest: Duration,
    next: Duration,
    // Where the partition stood when it last stopped.
    stood: Option<i64>,
}

impl Pause {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, stood: None }
    }

    /// The pause of a partition that stopped at `frontier`. It begins anew if
    /// the partition has moved since it last stopped.
    pub(crate) fn after(&mut self, frontier: Option<i64>) -> Duration {
        if frontier != self.stood {
            self.next = self.first;
        }
        self.stood = frontier;
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Pause};

    #[test]
    fn a_pause_doubles_until_the_partition_moves() {
        let mut pause = Pause::new(Duration::from_secs(1), Duration::from_secs(5));
        let mut after = |frontier| pause.after(Some(frontier)).as_secs();
        assert_eq!([after(7), after(7), after(7), after(7), after(7)], [1, 2, 4, 5, 5]);
        assert_eq!([after(8), after(8), after(9)], [1, 2, 1]);
    }
}
