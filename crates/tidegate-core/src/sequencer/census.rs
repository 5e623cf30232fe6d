use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How many deltas are parked in a namespace, as it was last counted.
///
/// What this process has parked since is added; what others have is not.
#[derive(Debug, Default)]
pub struct Census {
    last: Mutex<Option<Count>>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    ns: i32,
    count: usize,
    at: Instant,
}

impl Census {
    /// For so long, a count is believed.
    const FRESH: Duration = Duration::from_secs(1);

    /// How many there are with `more`, if it is known that they are not more than
    /// `bound`. At the bound a count has to be right, so it is made anew.
    #[must_use]
    pub fn with(&self, ns: i32, more: usize, bound: usize) -> Option<usize> {
        let mut last = self.last();
        let known = last.as_mut().filter(|it| it.ns == ns && it.at.elapsed() < Self::FRESH)?;
        let count = known.count.checked_add(more).filter(|count| *count <= bound)?;
        known.count = count;
        Some(count)
    }

    /// Takes down that so many were counted, and returns how many there are with
    /// `more`. Above `bound` nothing is parked, and the count forgotten.
    pub fn counted(&self, ns: i32, count: usize, more: usize, bound: usize) -> usize {
        let count = count.saturating_add(more);
        *self.last() = (count <= bound).then(|| Count { ns, count, at: Instant::now() });
        count
    }

    fn last(&self) -> MutexGuard<'_, Option<Count>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, advance};

    use super::Census;

    #[tokio::test(start_paused = true)]
    async fn a_count_is_believed_for_a_second_and_up_to_the_bound() {
        let census = Census::default();
        assert_eq!(census.with(1, 1, 10), None, "nothing was counted");
        assert_eq!(census.counted(1, 4, 2, 10), 6);
        assert_eq!(census.with(2, 1, 10), None, "another namespace");
        assert_eq!(census.with(1, 3, 10), Some(9));
        assert_eq!(census.with(1, 2, 10), None, "above the bound");
        assert_eq!(census.with(1, 1, 10), Some(10));
        advance(Duration::from_secs(1)).await;
        assert_eq!(census.with(1, 0, 10), None, "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_that_left_no_room_is_forgotten() {
        let census = Census::default();
        assert_eq!(census.counted(1, 9, 2, 10), 11);
        assert_eq!(census.with(1, 0, 10), None);
    }
}
