use tidegate::core::{Error, Outcome, Recorded, Ticket};

use super::{BoxFuture, Completes};

/// Completes each record when it is delivered. So offsets are committed before
/// the effects are made.
#[derive(Clone)]
pub(in crate::worker) struct CompletedEarly;

impl Completes for CompletedEarly {
    fn complete<F>(&self, _: i64, ticket: Ticket, response: F) -> BoxFuture<Result<Recorded, Error>>
    where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let recorded = ticket.complete(Outcome::Applied);
        Box::pin(async move { response.await.map(|_| recorded) })
    }
}
