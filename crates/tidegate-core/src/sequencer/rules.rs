use std::time::Duration;

/// In which order deltas are applied, and what becomes of those that come early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The first revision of an entity. Those before it are stale.
    pub first: i64,
    /// Whether any later revision is the next one, and nothing is early.
    pub newest_wins: bool,
    /// What becomes of an early delta.
    pub gaps: GapPolicy,
    /// How much may wait.
    pub bounds: Bounds,
}

/// What becomes of a delta that comes before its predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    /// It is stored until its predecessor comes.
    #[default]
    Park,
    /// It is poison.
    Reject,
}

/// How much may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many deltas of one entity are parked at most. 1000 by default.
    pub per_entity: usize,
    /// How many deltas of the namespace are parked at most. 100 000 by default.
    ///
    /// Counted once a second: processes that park at the same time may exceed it
    /// by what they park in one.
    pub per_namespace: usize,
    /// After how long an entity that waits is given up: what is parked of it goes
    /// to the dead letters. 7 days by default.
    pub age: Duration,
    /// How many parked deltas one transaction releases at most. 100 by default.
    pub released: usize,
}

// ===== impl Rules =====

impl Rules {
    /// Where an entity stands that nothing is known of.
    #[must_use]
    pub fn base(&self) -> i64 {
        self.first - 1
    }

    /// Whether a delta may have a revision at all.
    #[must_use]
    pub fn allow(&self, revision: i64) -> bool {
        self.newest_wins || revision >= self.first.min(1)
    }
}

impl Default for Rules {
    /// The first revision is 1, each next one is one higher, and what comes early
    /// is parked.
    fn default() -> Self {
        Self { first: 1, newest_wins: false, gaps: GapPolicy::default(), bounds: Bounds::default() }
    }
}

// ===== impl Bounds =====

impl Default for Bounds {
    fn default() -> Self {
        Self {
            per_entity: 1_000,
            per_namespace: 100_000,
            age: Duration::from_secs(7 * 24 * 60 * 60),
            released: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;

    #[test]
    fn a_revision_below_all_that_an_entity_can_have_is_none() {
        let newest = Rules { newest_wins: true, first: i64::MIN + 1, ..Rules::default() };
        for (rules, revision, allowed) in [
            (Rules::default(), 1, true),
            (Rules::default(), 0, false),
            // It may be stale, which is no fault.
            (Rules { first: 10, ..Rules::default() }, 1, true),
            (Rules { first: 10, ..Rules::default() }, 0, false),
            (Rules { first: -5, ..Rules::default() }, -5, true),
            (Rules { first: -5, ..Rules::default() }, -6, false),
            (newest, i64::MIN, true),
        ] {
            assert_eq!(rules.allow(revision), allowed, "{rules:?} {revision}");
        }
    }
}
