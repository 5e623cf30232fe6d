//! Sees when a stack has done a record.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tidegate::prelude::Delivery;
use tower_service::Service;

use crate::meter::Meter;

/// Notes each record that the stack below has answered with success: its effect
/// is durable then.
pub(super) struct Metered<S> {
    inner: S,
    meter: Meter,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, meter: Meter) -> Self {
        Self { inner, meter }
    }
}

impl<S> Service<Delivery> for Metered<S>
where
    S: Service<Delivery, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let (partition, offset) = (delivery.record.partition.partition, delivery.record.offset);
        let meter = self.meter.clone();
        let call = self.inner.call(delivery);
        Box::pin(async move {
            let response = call.await?;
            meter.note_at(partition, offset);
            Ok(response)
        })
    }
}
