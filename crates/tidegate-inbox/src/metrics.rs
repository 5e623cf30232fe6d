use std::fmt;

use metrics::{Counter, counter, describe_counter};
use tidegate_core::Outcome;

// Handles are resolved once, when an inbox is made.
#[derive(Clone)]
pub(crate) struct Metrics {
    new: Counter,
    duplicate: Counter,
    too_old: Counter,
    conflict: Counter,
    again: Counter,
    further: Counter,
    pruned: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(
            "tidegate_inbox_claims_total",
            "Messages that were claimed, by what the inbox knew of them."
        );
        describe_counter!("tidegate_inbox_claimed_again_total", "Batches that were claimed again.");
        describe_counter!(
            "tidegate_inbox_further_transactions_total",
            "Transactions that went on with what a batch set free."
        );
        describe_counter!("tidegate_inbox_pruned_total", "Markers that were removed.");
        let claim = |result| counter!("tidegate_inbox_claims_total", "result" => result);
        Self {
            new: claim("new"),
            duplicate: claim("duplicate"),
            too_old: claim("too_old"),
            conflict: claim("conflict"),
            again: counter!("tidegate_inbox_claimed_again_total"),
            further: counter!("tidegate_inbox_further_transactions_total"),
            pruned: counter!("tidegate_inbox_pruned_total"),
        }
    }

    pub(crate) fn claimed(&self, decided: &[Option<Outcome>]) {
        let count =
            |outcome: Option<Outcome>| decided.iter().filter(|it| **it == outcome).count() as u64;
        self.new.increment(count(None));
        self.duplicate.increment(count(Some(Outcome::Duplicate)));
        self.too_old.increment(count(Some(Outcome::TooOld)));
    }

    pub(crate) fn conflict(&self) {
        self.conflict.increment(1);
    }

    pub(crate) fn claimed_again(&self) {
        self.again.increment(1);
    }

    pub(crate) fn further(&self) {
        self.further.increment(1);
    }

    pub(crate) fn pruned(&self, count: u64) {
        self.pruned.increment(count);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
