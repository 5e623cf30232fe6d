use std::fmt;

use tower_layer::Layer;

use crate::{Sequencer, SequencerService};

/// Applies [`SequencerService`] to a service that works in a transaction.
///
/// See the [crate docs](crate) for an example.
pub struct SequencerLayer<T> {
    sequencer: Sequencer<T>,
}

impl<T> SequencerLayer<T> {
    /// Creates a layer that keeps the order of `sequencer`.
    #[must_use]
    pub fn new(sequencer: Sequencer<T>) -> Self {
        Self { sequencer }
    }
}

impl<S, T> Layer<S> for SequencerLayer<T> {
    type Service = SequencerService<S, T>;

    fn layer(&self, inner: S) -> Self::Service {
        SequencerService::new(inner, self.sequencer.clone())
    }
}

impl<T> Clone for SequencerLayer<T> {
    fn clone(&self) -> Self {
        Self::new(self.sequencer.clone())
    }
}

impl<T> fmt::Debug for SequencerLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencerLayer").field("sequencer", &self.sequencer).finish()
    }
}
