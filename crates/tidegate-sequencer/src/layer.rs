use std::fmt;

use tower_layer::Layer;

use crate::{Sequencer, SequencerService};

/// Applies [`SequencerService`] to a service that works in a transaction.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone)]
pub struct SequencerLayer<D> {
    sequencer: Sequencer<D>,
}

impl<D> SequencerLayer<D> {
    /// Creates a layer that keeps the order of `sequencer`.
    #[must_use]
    pub fn new(sequencer: Sequencer<D>) -> Self {
        Self { sequencer }
    }
}

impl<S, D: Clone> Layer<S> for SequencerLayer<D> {
    type Service = SequencerService<S, D>;

    fn layer(&self, inner: S) -> Self::Service {
        SequencerService::new(inner, self.sequencer.clone())
    }
}

impl<D> fmt::Debug for SequencerLayer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencerLayer").field("sequencer", &self.sequencer).finish()
    }
}
