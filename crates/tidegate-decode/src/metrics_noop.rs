#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn undecodable(&self) {}
}
