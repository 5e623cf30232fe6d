use std::{
    error::Error as StdError,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    vec,
};

use pin_project::pin_project;
use tidegate_core::{Class, Delivery, Error, IsRecorded, Record, Responses};
use tower_service::Service;
use tracing::{Span, level_filters::LevelFilter};

use super::{Item, Load, Reported, Work};

// So many records are admitted at most before other tasks get a turn.
const TURN: usize = 1_024;

// The lease is looked at before each so many records of a turn: that reads the
// clock. A change wakes the task, and a turn begins with a look; a fence looks at
// each record.
const LOOK: usize = 16;

/// Delivers until the lease is not active or a delivery fails, then takes the
/// answers of what runs.
pub(super) async fn deliver<S>(mut stack: S, work: &mut Work)
where
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>>,
{
    let load = Arc::clone(&work.load);
    let mut responses = Responses::default();
    if let Err(error) = intake(&mut stack, &mut responses, &load, work).await {
        work.reports.send(&work.lease, Reported::Failed(cause(error)));
    }
    // What waited is answered by the lanes, what runs may finish. Failures are
    // left to the next owner, or to the next lease, which reads again from the
    // frontier.
    poll_fn(|cx| responses.poll_all(cx)).await;
}

/// Admits records, in order, for as long as it may.
async fn intake<'l, S>(
    stack: &mut S,
    responses: &mut Responses<Response<'l, S::Future>>,
    load: &'l Load,
    work: &mut Work,
) -> Result<(), Error>
where
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>>,
{
    let lease = Arc::clone(&work.lease);
    let mut changed = pin!(lease.changed());
    // Left to the next owner, if the lease has just ended.
    let failed = |error| Poll::Ready(if lease.is_active() { Err(error) } else { Ok(()) });
    let mut items = Vec::new().into_iter();
    // A record that is taken and not admitted yet.
    let mut next: Option<Record> = None;
    poll_fn(|cx| {
        responses.register(cx);
        for turn in 0..TURN {
            if turn % LOOK == 0 {
                while changed.as_mut().poll(cx).is_ready() {
                    changed.set(lease.changed());
                }
                if !lease.is_active() {
                    return Poll::Ready(Ok(()));
                }
            }
            if let Err(error) = responses.poll_woken() {
                return failed(error);
            }
            if next.is_none() {
                match ready!(poll_item(&mut items, work, cx)) {
                    Some(Item::Record(record)) => next = Some(record),
                    Some(Item::End(end)) => {
                        let reached = work.frontier.end_of_partition(end);
                        if let Err(error) = reached {
                            return Poll::Ready(Err(Error::new(Class::Fatal, error)));
                        }
                        continue;
                    }
                    // The driver has dropped its side, and ends the lease.
                    None => return Poll::Ready(Ok(())),
                }
            }
            ready!(stack.poll_ready(cx)).map_err(Into::into)?;
            let record = next.take().expect("there is one, by the branch above");
            let delivery = Delivery::new(Arc::clone(&lease), record);
            // It is polled here, before the next record is admitted: nothing is
            // let in behind a failure that is known (I14).
            if let Err(error) = responses.push(Response::of(stack, delivery, load)) {
                return failed(error);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

fn poll_item(
    items: &mut vec::IntoIter<Item>,
    work: &mut Work,
    cx: &mut Context<'_>,
) -> Poll<Option<Item>> {
    loop {
        if let Some(item) = items.next() {
            return Poll::Ready(Some(item));
        }
        match ready!(work.chunks.poll_recv(cx)) {
            Some(chunk) => *items = chunk.into_iter(),
            None => return Poll::Ready(None),
        }
    }
}

/// What a failure comes from: a delivery that was halted carries the error that
/// halted it, and that one is to be shown.
fn cause(error: Error) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(source) = cause {
        match source.downcast_ref::<Error>() {
            Some(error) if error.class() != Class::Fenced => return error.clone(),
            _ => cause = source.source(),
        }
    }
    error
}

/// A response, and what it holds of the load.
#[pin_project]
struct Response<'l, F> {
    #[pin]
    inner: F,
    span: Option<Box<Span>>,
    held: Held<'l>,
}

struct Held<'l> {
    load: &'l Load,
    bytes: usize,
}

impl<'l, F> Response<'l, F> {
    fn of<S>(stack: &mut S, delivery: Delivery, load: &'l Load) -> Self
    where
        S: Service<Delivery, Future = F>,
    {
        // Spans of single records are for debugging. Where nobody looks, what
        // they cost is this comparison.
        let span = (LevelFilter::current() >= LevelFilter::DEBUG)
            .then(|| Box::new(tracing::debug_span!("record", offset = delivery.record.offset)));
        let held = Held { load, bytes: delivery.record.size() };
        let entered = span.as_ref().map(|span| span.enter());
        let inner = stack.call(delivery);
        drop(entered);
        Self { inner, span, held }
    }
}

impl<F, T, E> Future for Response<'_, F>
where
    F: Future<Output = Result<T, E>>,
    T: IsRecorded,
    E: Into<Error>,
{
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.span.as_ref().map(|span| span.enter());
        let recorded = ready!(this.inner.poll(cx));
        Poll::Ready(
            recorded
                .map(|it| {
                    it.recorded();
                })
                .map_err(Into::into),
        )
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.load.give_back(self.bytes);
    }
}
