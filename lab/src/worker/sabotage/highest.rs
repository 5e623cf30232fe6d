use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tidegate::core::{Class, Delivery, Error, Frontier, Outcome, Recorded, Ticket};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the frontier's layer: completes, with each record, all that
/// lie below it. So the highest finished offset is what is committed.
#[derive(Clone)]
pub(in crate::worker) struct HighestFinishedLayer {
    frontier: Frontier,
}

pub(in crate::worker) struct HighestFinishedService<S> {
    inner: S,
    frontier: Frontier,
    tickets: Arc<Mutex<Tickets>>,
}

#[derive(Default)]
struct Tickets {
    open: BTreeMap<i64, Ticket>,
    // Of those that a later record has completed.
    completed: BTreeMap<i64, Recorded>,
}

impl HighestFinishedLayer {
    pub(in crate::worker) fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }
}

impl<S> Layer<S> for HighestFinishedLayer {
    type Service = HighestFinishedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let frontier = self.frontier.clone();
        HighestFinishedService { inner, frontier, tickets: Arc::default() }
    }
}

impl<S> Service<Delivery> for HighestFinishedService<S>
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
        let offset = delivery.record.offset;
        let tickets = Arc::clone(&self.tickets);
        match self.frontier.admit(offset) {
            Ok(ticket) => drop(lock(&tickets).open.insert(offset, ticket)),
            Err(error) => {
                return Box::pin(async move { Err(Error::new(Class::Fatal, error)) });
            }
        }
        let response = self.inner.call(delivery);
        Box::pin(async move {
            let outcome = response.await?;
            let mut tickets = lock(&tickets);
            let above = tickets.open.split_off(&(offset + 1));
            let finished = std::mem::replace(&mut tickets.open, above);
            for (offset, ticket) in finished {
                tickets.completed.insert(offset, ticket.complete(outcome));
            }
            Ok(tickets.completed.remove(&offset).expect("its ticket was completed, now or before"))
        })
    }
}

fn lock(tickets: &Mutex<Tickets>) -> MutexGuard<'_, Tickets> {
    tickets.lock().unwrap_or_else(PoisonError::into_inner)
}
