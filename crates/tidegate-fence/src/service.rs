use std::task::{Context, Poll};

use tidegate_core::{Error, IntoError, Lease, LeaseState, SingleRequest};
use tower_service::Service;

use crate::{Refused, metrics::Metrics};

/// Refuses what comes after the lease stopped being active.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    lease: Lease,
    metrics: Metrics,
}

// ===== impl FenceService =====

impl<S> FenceService<S> {
    pub(crate) fn new(inner: S, lease: Lease, metrics: Metrics) -> Self {
        Self { inner, lease, metrics }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the fence, returning the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R> Service<R> for FenceService<S>
where
    R: SingleRequest,
    S: Service<R, Error: Into<Error>>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = IntoError<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A refusal never calls the inner service, so what this reserves stays
        // reserved. Nothing else comes for it: a lease is never active again,
        // and the reservation goes with the stack.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let state = self.lease.state();
        if state == LeaseState::Active {
            return IntoError::new(self.inner.call(request));
        }
        self.metrics.refused(state);
        let partition = self.lease.partition();
        let offset = request.delivery().record.offset;
        tracing::debug!(%partition, offset, %state, "refusing a delivery");
        IntoError::refused(Refused { partition: partition.clone(), state })
    }
}
