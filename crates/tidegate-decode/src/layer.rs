use tidegate_core::Decoder;
use tower_layer::Layer;

use crate::{DecodeService, metrics::Metrics};

/// Applies [`DecodeService`] to a service.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct DecodeLayer<D> {
    decoder: D,
    metrics: Metrics,
}

impl<D: Decoder> DecodeLayer<D> {
    /// Creates a layer that decodes with `decoder`.
    #[must_use]
    pub fn new(decoder: D) -> Self {
        Self { decoder, metrics: Metrics::new() }
    }
}

impl<S, D: Clone> Layer<S> for DecodeLayer<D> {
    type Service = DecodeService<S, D>;

    fn layer(&self, inner: S) -> Self::Service {
        DecodeService::new(inner, self.decoder.clone(), self.metrics.clone())
    }
}
