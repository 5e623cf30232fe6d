//! Stands in for the metrics when the feature is off.

use tidegate_core::Outcome;

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn claimed(&self, _: &[Option<Outcome>]) {}

    pub(crate) fn conflict(&self) {}

    pub(crate) fn claimed_again(&self) {}

    pub(crate) fn further(&self) {}

    pub(crate) fn pruned(&self, _: u64) {}
}
