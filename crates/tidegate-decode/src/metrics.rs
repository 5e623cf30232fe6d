use std::fmt;

use metrics::{Counter, Unit, counter, describe_counter};

const UNDECODABLE: &str = "tidegate_decode_undecodable_total";

// The handle is resolved once per layer, and only a failure touches it.
#[derive(Clone)]
pub(crate) struct Metrics {
    undecodable: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(UNDECODABLE, Unit::Count, "Records that could not be decoded.");
        Self { undecodable: counter!(UNDECODABLE) }
    }

    pub(crate) fn undecodable(&self) {
        self.undecodable.increment(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
