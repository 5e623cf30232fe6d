//! Stands in for the metrics when the feature is off.

use tidegate_core::sequencer::Plan;

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn planned(&self, _: &Plan<'_>) {}

    pub(crate) fn released(&self, _: usize) {}

    pub(crate) fn refused(&self) {}

    pub(crate) fn withheld(&self) {}

    pub(crate) fn parked_now(&self, _: usize) {}
}
