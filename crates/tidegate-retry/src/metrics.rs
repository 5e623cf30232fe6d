use std::fmt;

use metrics::{Counter, Unit, counter, describe_counter};

const RETRIES: &str = "tidegate_retry_retries_total";
const RECOVERED: &str = "tidegate_retry_recovered_total";
const GIVEN_UP: &str = "tidegate_retry_given_up_total";

// Handles are resolved once per layer, and only a failure touches them.
#[derive(Clone)]
pub(crate) struct Metrics {
    retries: Counter,
    recovered: Counter,
    given_up: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(
            RETRIES,
            Unit::Count,
            "Tries of a batch that failed for now, and were to be made again."
        );
        describe_counter!(RECOVERED, Unit::Count, "Batches that succeeded after a retry.");
        describe_counter!(
            GIVEN_UP,
            Unit::Count,
            "Batches that were tried again, and left when their lease was no longer active."
        );
        Self {
            retries: counter!(RETRIES),
            recovered: counter!(RECOVERED),
            given_up: counter!(GIVEN_UP),
        }
    }

    pub(crate) fn retried(&self) {
        self.retries.increment(1);
    }

    pub(crate) fn recovered(&self) {
        self.recovered.increment(1);
    }

    pub(crate) fn gave_up(&self) {
        self.given_up.increment(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
