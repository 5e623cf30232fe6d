//! Response future of [`QueueService`](crate::QueueService).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tidegate_core::{Error, Outcome};

use crate::shared::Shared;

/// Resolves to the delivery's own outcome or error.
///
/// # Cancel safety
///
/// Dropping it does not recall the delivery: what was admitted runs, since
/// leaving it out would put the rest of its lane out of order. Its place in the
/// queue is free when it has run.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<T> {
    // Gone when the answer is taken.
    place: Option<Place<T>>,
}

/// The place of one delivery in the queue, where its answer is put.
struct Place<T> {
    shared: Arc<Shared<T>>,
    slot: usize,
}

impl<T> ResponseFuture<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, slot: usize) -> Self {
        Self { place: Some(Place { shared, slot }) }
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place.as_ref().expect("a future is not polled after it is done");
        let poll = place.shared.poll_answer(place.slot, cx);
        if poll.is_ready() {
            self.place = None;
        }
        poll
    }
}

impl<T> Drop for ResponseFuture<T> {
    fn drop(&mut self) {
        if let Some(Place { shared, slot }) = &self.place {
            shared.desert(*slot);
        }
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
