use tidegate_core::LeaseState;

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn refused(&self, _: LeaseState) {}
}
