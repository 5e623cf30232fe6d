//! Stands in for the metrics when the feature is off.

use std::time::Duration;

use crate::txn::Ending;

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

/// What came of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimResult {
    Written,
    Foreign,
    Failed,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn begun(&self, _: Duration) {}

    pub(crate) fn ended(&self, _: Ending, _: Duration) {}

    pub(crate) fn claimed(&self, _: ClaimResult) {}

    pub(crate) fn refused(&self) {}

    pub(crate) fn buried(&self, _: u64) {}
}
