use crate::place::Place;

#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn buried(&self, _: Place) {}

    pub(crate) fn remembered(&self, _: Place, _: usize) {}
}
