//! Which errors of the client were shown a short time ago: it repeats the same
//! one many times a second while a broker is away.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// The same error is shown again after this long.
const AGAIN: Duration = Duration::from_secs(10);

/// How many are remembered: their texts can hold what changes each time.
const MOST: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Shown(HashMap<String, Instant>);

impl Shown {
    /// Whether that error is due to be shown, and then it counts as shown.
    pub(super) fn is_due(&mut self, error: &str, now: Instant) -> bool {
        let at = self.0.get(error);
        if at.is_some_and(|at| now.saturating_duration_since(*at) < AGAIN) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(error.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_repeats_is_shown_once_in_ten_seconds() {
        let mut shown = Shown::default();
        let start = Instant::now();
        let seconds = |n| start + Duration::from_secs(n);
        assert!(shown.is_due("the broker is away", start));
        assert!(!shown.is_due("the broker is away", seconds(9)));
        assert!(shown.is_due("another broker is away", seconds(9)));
        assert!(shown.is_due("the broker is away", seconds(10)));
        assert!(!shown.is_due("the broker is away", seconds(19)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut shown = Shown::default();
        let now = Instant::now();
        for n in 0..10 * MOST {
            assert!(shown.is_due(&n.to_string(), now));
            assert!(shown.0.len() <= MOST);
        }
    }
}
