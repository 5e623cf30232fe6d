use std::{
    task::{Context, Poll},
    time::Duration,
};

use tidegate::core::{Class, Delivery, Error, Frontier, Outcome, Recorded};
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the frontier's layer: a record whose work takes too long is
/// cancelled, and taken for complete.
#[derive(Clone)]
pub(in crate::worker) struct CancelledCompletedLayer {
    frontier: Frontier,
}

pub(in crate::worker) struct CancelledCompletedService<S> {
    inner: S,
    frontier: Frontier,
}

const TOO_LONG: Duration = Duration::from_secs(1);

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
        let ticket = match self.frontier.admit(delivery.record.offset) {
            Ok(ticket) => ticket,
            Err(error) => return Box::pin(async move { Err(Error::new(Class::Fatal, error)) }),
        };
        let response = timeout(TOO_LONG, self.inner.call(delivery));
        Box::pin(async move {
            let outcome = response.await.unwrap_or(Ok(Outcome::Applied))?;
            Ok(ticket.complete(outcome))
        })
    }
}
