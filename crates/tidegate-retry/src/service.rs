use std::task::{Context, Poll};

use tidegate_core::{Batch, BatchRequest, Delivery, Error, IntoError, Outcomes};
use tower::retry::Retry;
use tower_service::Service;

use crate::{
    Backoff,
    future::ResponseFuture,
    metrics::Metrics,
    policy::{Policy, Try},
};

/// Tries a batch again while its failure is transient and its lease is active.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct RetryService<S> {
    inner: Retry<Policy, Gate<S>>,
}

/// Makes no further try once the lease is no longer active.
///
/// Tower's retry tries again after a wait, however the wait ended. The first
/// try of a batch passes also in a drain: a part of one that is taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Gate<S> {
    inner: S,
}

// ===== impl RetryService =====

impl<S> RetryService<S> {
    pub(crate) fn new(inner: S, backoff: Backoff, metrics: Metrics) -> Self {
        Self { inner: Retry::new(Policy::new(backoff, metrics), Gate { inner }) }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner.get_ref().inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner.get_mut().inner
    }

    /// Consumes the service, returning the inner one.
    pub fn into_inner(self) -> S {
        self.inner.into_inner().inner
    }
}

impl<S, R> Service<R> for RetryService<S>
where
    R: BatchRequest<Value: Send + Sync + 'static>,
    S: Service<Batch<Delivery<R::Value>>, Response = Outcomes, Error: Into<Error>> + Clone,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = ResponseFuture<S, R::Value>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The readiness for the first try. Each further one is asked for by the
        // future, of an instance of its own.
        Service::<Try<R::Value>>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        ResponseFuture::new(self.inner.call(Try::first(request.into_batch())))
    }
}

// ===== impl Gate =====

impl<S, T> Service<Try<T>> for Gate<S>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = IntoError<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, Try { batch, failed }: Try<T>) -> Self::Future {
        match failed {
            Some(error) if !batch.first().lease.is_active() => IntoError::refused(error),
            _ => IntoError::new(self.inner.call(batch)),
        }
    }
}
