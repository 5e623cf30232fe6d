#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn retried(&self) {}

    pub(crate) fn recovered(&self) {}

    pub(crate) fn gave_up(&self) {}
}
