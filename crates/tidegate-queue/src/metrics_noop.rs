use std::time::Duration;

use tidegate_core::{Class, Volume};

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn in_flight(&self, _: Volume, _: Volume) {}

    pub(crate) fn batch(&self, _: usize, _: Duration) {}

    pub(crate) fn bisected(&self) {}

    pub(crate) fn halted(&self, _: Class) {}

    pub(crate) fn unstarted(&self, _: usize) {}
}
