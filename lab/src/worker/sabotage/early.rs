use std::task::{Context, Poll};

use tidegate::core::{Class, Delivery, Error, Frontier, Outcome, Recorded};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the frontier's layer: completes each record when it is
/// delivered. So offsets are committed before the effects are made.
#[derive(Clone)]
pub(in crate::worker) struct CompletedEarlyLayer {
    frontier: Frontier,
}

pub(in crate::worker) struct CompletedEarlyService<S> {
    inner: S,
    frontier: Frontier,
}

impl CompletedEarlyLayer {
    pub(in crate::worker) fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }
}

impl<S> Layer<S> for CompletedEarlyLayer {
    type Service = CompletedEarlyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CompletedEarlyService { inner, frontier: self.frontier.clone() }
    }
}

impl<S> Service<Delivery> for CompletedEarlyService<S>
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
        let recorded = match self.frontier.admit(delivery.record.offset) {
            Ok(ticket) => ticket.complete(Outcome::Applied),
            Err(error) => return Box::pin(async move { Err(Error::new(Class::Fatal, error)) }),
        };
        let response = self.inner.call(delivery);
        Box::pin(async move { response.await.map(|_| recorded) })
    }
}
