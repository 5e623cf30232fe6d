use std::time::Duration;

use tidegate::core::{Error, Outcome, Recorded, Ticket};
use tokio::time::timeout;

use super::{BoxFuture, Completes};

/// A record whose work takes too long is cancelled, and taken for complete.
#[derive(Clone)]
pub(in crate::worker) struct CancelledCompleted;

const TOO_LONG: Duration = Duration::from_secs(1);

impl Completes for CancelledCompleted {
    fn complete<F>(&self, _: i64, ticket: Ticket, response: F) -> BoxFuture<Result<Recorded, Error>>
    where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let response = timeout(TOO_LONG, response);
        Box::pin(async move {
            let outcome = response.await.unwrap_or(Ok(Outcome::Applied))?;
            Ok(ticket.complete(outcome))
        })
    }
}
