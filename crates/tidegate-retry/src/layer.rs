use tower_layer::Layer;

use crate::{Backoff, RetryService, metrics::Metrics};

/// Applies [`RetryService`] to a service of batches.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct RetryLayer {
    backoff: Backoff,
    metrics: Metrics,
}

impl RetryLayer {
    /// Creates a layer that waits as `backoff` says between two tries.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, metrics: Metrics::new() }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService::new(inner, self.backoff.clone(), self.metrics.clone())
    }
}
