use std::task::{Context, Poll};

use tidegate::core::{Class, Delivery, Error, Frontier, Outcome, Recorded, Ticket};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the frontier's layer: a record whose work is cancelled is
/// complete.
#[derive(Clone)]
pub(in crate::worker) struct CancelledCompletedLayer {
    frontier: Frontier,
}

pub(in crate::worker) struct CancelledCompletedService<S> {
    inner: S,
    frontier: Frontier,
}

/// A ticket that is completed however its work ends.
struct Completed(Option<Ticket>);

impl CancelledCompletedLayer {
    pub(in crate::worker) fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }
}

impl<S> Layer<S> for CancelledCompletedLayer {
    type Service = CancelledCompletedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CancelledCompletedService { inner, frontier: self.frontier.clone() }
    }
}

impl<S> Service<Delivery> for CancelledCompletedService<S>
where
    S: Service<Delivery, Response = Outcome, Error = Error>,
    S::Future: Send + 'static,
{
    type Response = Recorded;
    type Error = Error;
    type Future = BoxFuture<Result<Recorded, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let mut ticket = match self.frontier.admit(delivery.record.offset) {
            Ok(ticket) => Completed(Some(ticket)),
            Err(error) => return Box::pin(async move { Err(Error::new(Class::Fatal, error)) }),
        };
        let response = self.inner.call(delivery);
        Box::pin(async move {
            let outcome = response.await?;
            let ticket = ticket.0.take().expect("only this and the drop take it");
            Ok(ticket.complete(outcome))
        })
    }
}

impl Drop for Completed {
    fn drop(&mut self) {
        if let Some(ticket) = self.0.take() {
            let _ = ticket.complete(Outcome::Applied);
        }
    }
}
