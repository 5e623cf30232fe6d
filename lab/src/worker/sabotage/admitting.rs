use std::task::{Context, Poll};

use tidegate::core::{Class, Delivery, Error, Frontier, Outcome, Recorded, Ticket};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the frontier's layer: admits each record as that does, and
/// leaves it to `W` when its ticket is completed.
#[derive(Clone)]
pub(in crate::worker) struct AdmittingLayer<W> {
    frontier: Frontier,
    wrong: W,
}

pub(in crate::worker) struct AdmittingService<S, W> {
    inner: S,
    frontier: Frontier,
    wrong: W,
}

/// When a ticket is completed, which is wrong.
pub(in crate::worker) trait Completes {
    /// Completes the ticket of the record at an offset, and some more. The
    /// response says what came of the record.
    fn complete<F>(
        &self,
        offset: i64,
        ticket: Ticket,
        response: F,
    ) -> BoxFuture<Result<Recorded, Error>>
    where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static;
}

impl<W> AdmittingLayer<W> {
    pub(in crate::worker) fn new(frontier: Frontier, wrong: W) -> Self {
        Self { frontier, wrong }
    }
}

impl<S, W: Clone> Layer<S> for AdmittingLayer<W> {
    type Service = AdmittingService<S, W>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { frontier, wrong } = self.clone();
        AdmittingService { inner, frontier, wrong }
    }
}

impl<S, W> Service<Delivery> for AdmittingService<S, W>
where
    S: Service<Delivery, Response = Outcome, Error = Error>,
    S::Future: Send + 'static,
    W: Completes,
{
    type Response = Recorded;
    type Error = Error;
    type Future = BoxFuture<Result<Recorded, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let offset = delivery.record.offset;
        match self.frontier.admit(offset) {
            Ok(ticket) => self.wrong.complete(offset, ticket, self.inner.call(delivery)),
            Err(error) => Box::pin(async move { Err(Error::new(Class::Fatal, error)) }),
        }
    }
}
