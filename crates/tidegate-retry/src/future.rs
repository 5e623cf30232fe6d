//! Response future of [`RetryService`](crate::RetryService).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project::pin_project;
use tidegate_core::{Batch, Delivery, Error, Outcomes};
use tower::retry::future;
use tower_service::Service;

use crate::{
    policy::{Policy, Try},
    service::Gate,
};

/// Resolves to the result of the last try.
///
/// # Cancel safety
///
/// Dropping it drops the try that runs, or the wait for the next one. Whether a
/// try that is dropped has had its effect is up to the inner service.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    T: Send + Sync + 'static,
{
    #[pin]
    inner: future::ResponseFuture<Policy, Gate<S>, Try<T>>,
}

impl<S, T> ResponseFuture<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    T: Send + Sync + 'static,
{
    pub(crate) fn new(inner: future::ResponseFuture<Policy, Gate<S>, Try<T>>) -> Self {
        Self { inner }
    }
}

impl<S, T> Future for ResponseFuture<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    T: Send + Sync + 'static,
{
    type Output = Result<Outcomes, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx)
    }
}

impl<S, T> fmt::Debug for ResponseFuture<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    T: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
