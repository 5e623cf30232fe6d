use std::fmt;

use tidegate_core::{Delivery, Sequenced};
use tower_layer::Layer;

use crate::{QueueConfig, QueueService, metrics::Metrics};

/// Applies [`QueueService`] to a service of batches.
///
/// See the [crate docs](crate) for an example.
pub struct QueueLayer<T> {
    config: QueueConfig,
    key_of: KeyOf<T>,
    metrics: Metrics,
}

/// What deliveries have in common that must stay in order.
pub(crate) type KeyOf<T> = fn(&Delivery<T>) -> Option<&[u8]>;

impl<T: Sequenced> QueueLayer<T> {
    /// Creates a layer whose lanes keep the deliveries of an entity in order.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        Self::with(config, |delivery| Some(delivery.value.entity()))
    }
}

impl<T> QueueLayer<T> {
    /// Creates a layer whose lanes keep the records of a key in order.
    ///
    /// Records without a key share a lane, so they stay in order too.
    #[must_use]
    pub fn by_key(config: QueueConfig) -> Self {
        Self::with(config, |delivery| delivery.record.key.as_deref())
    }

    fn with(config: QueueConfig, key_of: KeyOf<T>) -> Self {
        Self { config, key_of, metrics: Metrics::new() }
    }
}

// No bound on `S`: it would turn the compiler's words about a wrong stack from
// ours into "method `service` exists, but its bounds were not satisfied".
impl<S, T> Layer<S> for QueueLayer<T> {
    type Service = QueueService<S, T>;

    fn layer(&self, inner: S) -> Self::Service {
        QueueService::new(inner, self.config.clone(), self.key_of, self.metrics.clone())
    }
}

impl<T> Clone for QueueLayer<T> {
    fn clone(&self) -> Self {
        let Self { config, key_of, metrics } = self;
        Self { config: config.clone(), key_of: *key_of, metrics: metrics.clone() }
    }
}

impl<T> fmt::Debug for QueueLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueLayer").field("config", &self.config).finish_non_exhaustive()
    }
}
