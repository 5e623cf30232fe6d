use std::task::{Context, Poll};

use tidegate_core::{Class, Error, Frontier, Outcome, Recorded, SingleRequest};
use tower_service::Service;

use crate::{
    future::{Admission, ResponseFuture},
    metrics::Metrics,
};

/// Admits each delivery's offset, and completes its ticket when the inner
/// service answers `Ok`.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct FrontierService<S> {
    inner: S,
    frontier: Frontier,
    metrics: Metrics,
}

// ===== impl FrontierService =====

impl<S> FrontierService<S> {
    pub(crate) fn new(inner: S, frontier: Frontier, metrics: Metrics) -> Self {
        Self { inner, frontier, metrics }
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

impl<S, R> Service<R> for FrontierService<S>
where
    R: SingleRequest,
    S: Service<R, Response = Outcome, Error: Into<Error>>,
{
    type Response = Recorded;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // An offset that is not admitted leaves the reservation unspent. Its
        // partition stops, and the reservation goes with the stack.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // I2: an offset that goes backwards is not a gap.
        let ticket = match self.frontier.admit(request.delivery().record.offset) {
            Ok(ticket) => ticket,
            Err(error) => return ResponseFuture::refused(Error::new(Class::Fatal, error)),
        };
        // Made before the call: a panic in there abandons the ticket too.
        let admission = Admission::new(ticket, self.metrics.clone());
        ResponseFuture::running(self.inner.call(request), admission)
    }
}
