//! Response future of [`FrontierService`](crate::FrontierService).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tidegate_core::{Error, Outcome, Recorded, Ticket};

use crate::metrics::Metrics;

/// Resolves to the proof that the inner service's outcome is recorded.
///
/// # Cancel safety
///
/// Dropped before it is done, it abandons its ticket: the offset stays
/// incomplete for as long as the lease lives.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F> {
    #[pin]
    state: State<F>,
}

#[pin_project(project = StateProj)]
enum State<F> {
    // The offset was not admitted; there is no inner future. Boxed: few are
    // refused, and all the others save the room.
    Refused {
        error: Option<Box<Error>>,
    },
    Running {
        #[pin]
        inner: F,
        admission: Option<Admission>,
    },
}

/// A ticket that is counted however it ends.
pub(crate) struct Admission {
    ticket: Option<Ticket>,
    metrics: Metrics,
}

// ===== impl ResponseFuture =====

impl<F> ResponseFuture<F> {
    pub(crate) fn refused(error: Error) -> Self {
        Self { state: State::Refused { error: Some(Box::new(error)) } }
    }

    pub(crate) fn running(inner: F, admission: Admission) -> Self {
        Self { state: State::Running { inner, admission: Some(admission) } }
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Outcome, E>>,
    E: Into<Error>,
{
    type Output = Result<Recorded, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Refused { error } => {
                let error = error.take().expect("a future is not polled after it is done");
                Poll::Ready(Err(*error))
            }
            StateProj::Running { inner, admission } => {
                let result = ready!(inner.poll(cx));
                let admission = admission.take().expect("a future is not polled after it is done");
                Poll::Ready(admission.settle(result.map_err(Into::into)))
            }
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// ===== impl Admission =====

impl Admission {
    pub(crate) fn new(ticket: Ticket, metrics: Metrics) -> Self {
        Self { ticket: Some(ticket), metrics }
    }

    fn settle(mut self, result: Result<Outcome, Error>) -> Result<Recorded, Error> {
        let ticket = self.ticket.take().expect("only this and the drop take it");
        match result {
            Ok(outcome) => {
                let recorded = ticket.complete(outcome);
                self.metrics.completed(recorded);
                Ok(recorded)
            }
            Err(error) => {
                ticket.abandon(error.clone());
                self.metrics.failed(error.class());
                Err(error)
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // The drop of the ticket abandons it.
        if self.ticket.is_some() {
            self.metrics.dropped();
        }
    }
}
