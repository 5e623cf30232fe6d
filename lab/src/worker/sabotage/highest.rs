use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tidegate::core::{Error, Outcome, Recorded, Ticket};

use super::{BoxFuture, Completes};

/// Completes, with each record, all that lie below it. So the highest finished
/// offset is what is committed.
#[derive(Clone, Default)]
pub(in crate::worker) struct HighestFinished {
    tickets: Arc<Mutex<Tickets>>,
}

#[derive(Default)]
struct Tickets {
    open: BTreeMap<i64, Ticket>,
    // Of those that a later record has completed.
    completed: BTreeMap<i64, Recorded>,
}

impl Completes for HighestFinished {
    fn complete<F>(
        &self,
        offset: i64,
        ticket: Ticket,
        response: F,
    ) -> BoxFuture<Result<Recorded, Error>>
    where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let tickets = Arc::clone(&self.tickets);
        lock(&tickets).open.insert(offset, ticket);
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
