//! Response future of [`QueueService`](crate::QueueService).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use tidegate_core::{Answer, Error, Outcome};

use crate::lane::Queued;

/// Resolves to the delivery's own outcome or error.
///
/// # Cancel safety
///
/// Dropping it does not recall the delivery: what was admitted runs, since
/// leaving it out would put the rest of its lane out of order. Its place in the
/// queue is free when it has run.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<T> {
    answer: Answer<Queued<T>>,
}

impl<T> ResponseFuture<T> {
    pub(crate) fn new(answer: Answer<Queued<T>>) -> Self {
        Self { answer }
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
