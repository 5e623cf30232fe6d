//! Response future of [`DeadLetterService`](crate::DeadLetterService).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tidegate_core::{DeadLetters, Error};

use crate::{burial::Suspect, place::Answer};

/// Resolves to the inner service's answer, or to `Buried` once the record is
/// stored.
///
/// # Cancel safety
///
/// Dropped during a burial, it is not known whether the record is stored. That
/// is safe: the record is delivered again, and burying twice is burying once.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F, D, R> {
    #[pin]
    state: State<F, D, R>,
    // Which records of a batch were not tried; empty if all were.
    remembered: Vec<bool>,
}

#[pin_project(project = StateProj)]
enum State<F, D, R> {
    // There is no inner future.
    Answered {
        result: Option<Result<R, Error>>,
    },
    Running {
        #[pin]
        inner: F,
        suspect: Option<Suspect<D>>,
    },
    // Boxed: few records are poison, and all the others save the room.
    Burying {
        burial: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
    },
}

impl<F, D, R> ResponseFuture<F, D, R> {
    pub(crate) fn answered(result: Result<R, Error>) -> Self {
        Self { state: State::Answered { result: Some(result) }, remembered: Vec::new() }
    }

    pub(crate) fn running(inner: F, suspect: Option<Suspect<D>>, remembered: Vec<bool>) -> Self {
        Self { state: State::Running { inner, suspect }, remembered }
    }
}

impl<F, D, R, E> Future for ResponseFuture<F, D, R>
where
    F: Future<Output = Result<R, E>>,
    D: DeadLetters,
    R: Answer,
    E: Into<Error>,
{
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Answered { result } => {
                    let result = result.take().expect("a future is not polled after it is done");
                    return Poll::Ready(result);
                }
                StateProj::Running { inner, suspect } => {
                    let error = match ready!(inner.poll(cx)).map_err(Into::into) {
                        Ok(answer) => return Poll::Ready(Ok(answer.with(this.remembered))),
                        Err(error) => error,
                    };
                    let convicted = suspect.take_if(|suspect| suspect.is_convicted(&error));
                    let Some(suspect) = convicted else { return Poll::Ready(Err(error)) };
                    let decision = suspect.decision();
                    let burial = Box::pin(suspect.bury(error, decision));
                    this.state.set(State::Burying { burial });
                }
                StateProj::Burying { burial } => {
                    return burial.as_mut().poll(cx).map_ok(|()| R::buried().with(this.remembered));
                }
            }
        }
    }
}

impl<F, D, R> fmt::Debug for ResponseFuture<F, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
