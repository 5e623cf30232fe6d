use std::task::{Context, Poll};

use tidegate_core::{Decoder, Delivery, Error, IntoError, SingleRequest};
use tower_service::Service;

use crate::{Undecodable, metrics::Metrics};

/// Decodes each delivery's record.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct DecodeService<S, D> {
    inner: S,
    decoder: D,
    metrics: Metrics,
}

// ===== impl DecodeService =====

impl<S, D> DecodeService<S, D> {
    pub(crate) fn new(inner: S, decoder: D, metrics: Metrics) -> Self {
        Self { inner, decoder, metrics }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the service, returning the inner one.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, D, R> Service<R> for DecodeService<S, D>
where
    R: SingleRequest<Value = ()>,
    D: Decoder,
    S: Service<Delivery<D::Value>, Error: Into<Error>>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = IntoError<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A record that does not decode leaves the reservation for the next
        // delivery, or for the drop of the stack.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let delivery = request.into_delivery();
        let cause = match self.decoder.decode(&delivery.record) {
            Ok(value) => return IntoError::new(self.inner.call(delivery.with_value(value))),
            Err(cause) => cause.into(),
        };
        self.metrics.undecodable();
        let culprit = delivery.culprit();
        tracing::debug!(
            partition = %culprit.partition,
            offset = culprit.offset,
            %cause,
            "a record cannot be decoded",
        );
        IntoError::refused(Error::from(Undecodable { cause }).with_culprit(culprit))
    }
}
