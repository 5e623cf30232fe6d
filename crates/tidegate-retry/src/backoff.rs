use std::time::Duration;

use tower::{
    retry::backoff::{ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff as _},
    util::rng::HasherRng,
};

/// How long to wait before a batch is tried again.
///
/// Each wait is twice as long as the one before, up to the longest, and up to
/// half as long again by chance, so that partitions whose database was away do
/// not come back in step.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    jitter: f64,
}

impl Default for Backoff {
    /// From 10 ms to 5 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_secs(5))
    }
}

impl Backoff {
    /// Waits `first` before the second try, and doubles that up to `longest`.
    ///
    /// # Panics
    ///
    /// When `first` is zero, or longer than `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        assert!(!first.is_zero(), "a retry waits");
        assert!(first <= longest, "the first wait is not the longest");
        Self { first, longest, jitter: 0.5 }
    }

    /// Sets the largest part of a wait that chance adds to it.
    ///
    /// # Panics
    ///
    /// When `jitter` is not from 0 to 1.
    #[must_use]
    pub fn with_jitter(self, jitter: f64) -> Self {
        assert!((0.0..=1.0).contains(&jitter), "chance adds a part of a wait, or all of it");
        Self { jitter, ..self }
    }

    /// The waits of one batch.
    pub(crate) fn waits(&self) -> ExponentialBackoff {
        // Of its own chance: two batches that fail together part.
        ExponentialBackoffMaker::new(self.first, self.longest, self.jitter, HasherRng::new())
            .expect("the constructor and the setter refuse what it would")
            .make_backoff()
    }
}
