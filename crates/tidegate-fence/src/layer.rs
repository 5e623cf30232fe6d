use tidegate_core::Lease;
use tower_layer::Layer;

use crate::{FenceService, metrics::Metrics};

/// Applies [`FenceService`] to a service.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    lease: Lease,
    metrics: Metrics,
}

impl FenceLayer {
    /// Creates a layer that lets through what comes while `lease` is active.
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        Self { lease, metrics: Metrics::new() }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService::new(inner, self.lease.clone(), self.metrics.clone())
    }
}
