//! Sees when a stack has done a record.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tidegate::prelude::Delivery;
use tower_service::Service;

use crate::meter::Meter;

/// Notes each record that the stack below has answered with success: its effect
/// is durable then.
pub(super) struct Metered<S> {
    inner: S,
    // Of this stack alone: all stacks share the meter, and what counts its handles
    // would be written by all processors for each record.
    meter: Arc<Meter>,
}

#[pin_project]
pub(super) struct ResponseFuture<F> {
    #[pin]
    inner: F,
    partition: i32,
    offset: i64,
    meter: Arc<Meter>,
}

// ===== impl Metered =====

impl<S> Metered<S> {
    pub(super) fn new(inner: S, meter: Meter) -> Self {
        Self { inner, meter: Arc::new(meter) }
    }
}

impl<S: Service<Delivery>> Service<Delivery> for Metered<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let (partition, offset) = (delivery.record.partition.partition, delivery.record.offset);
        let inner = self.inner.call(delivery);
        ResponseFuture { inner, partition, offset, meter: Arc::clone(&self.meter) }
    }
}

// ===== impl ResponseFuture =====

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        this.meter.note_at(*this.partition, *this.offset);
        Poll::Ready(Ok(response))
    }
}
