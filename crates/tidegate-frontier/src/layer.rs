use tidegate_core::Frontier;
use tower_layer::Layer;

use crate::{FrontierService, metrics::Metrics};

/// Applies [`FrontierService`] to a service.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct FrontierLayer {
    frontier: Frontier,
    metrics: Metrics,
}

impl FrontierLayer {
    /// Creates a layer that admits to `frontier`.
    #[must_use]
    pub fn new(frontier: Frontier) -> Self {
        Self { frontier, metrics: Metrics::new() }
    }
}

impl<S> Layer<S> for FrontierLayer {
    type Service = FrontierService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FrontierService::new(inner, self.frontier.clone(), self.metrics.clone())
    }
}
