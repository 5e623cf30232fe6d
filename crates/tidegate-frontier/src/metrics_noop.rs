use tidegate_core::{Class, Recorded};

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn completed(&self, _: Recorded) {}

    pub(crate) fn failed(&self, _: Class) {}

    pub(crate) fn dropped(&self) {}
}
