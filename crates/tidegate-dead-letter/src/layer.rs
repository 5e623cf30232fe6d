use tidegate_core::{DeadLetters, Frontier, Lease};
use tower_layer::Layer;

use crate::{DeadLetterService, memory::Memory, metrics::Metrics};

/// Applies [`DeadLetterService`] to a service.
///
/// Its clones share what the store said: a stack that has the layer in both
/// places asks once.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct DeadLetterLayer<D> {
    memory: Memory<D>,
    metrics: Metrics,
}

impl<D: DeadLetters> DeadLetterLayer<D> {
    /// Creates a layer that buries in `letters`.
    ///
    /// `lease` and `frontier` are those of the assignment: they say which
    /// partition the store is asked about, and from which offset on.
    #[must_use]
    pub fn new(letters: D, lease: &Lease, frontier: &Frontier) -> Self {
        let memory = Memory::new(letters, lease.partition().clone(), frontier.offset());
        Self { memory, metrics: Metrics::new() }
    }
}

impl<S, D: Clone> Layer<S> for DeadLetterLayer<D> {
    type Service = DeadLetterService<S, D>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadLetterService::new(inner, self.memory.clone(), self.metrics.clone())
    }
}
