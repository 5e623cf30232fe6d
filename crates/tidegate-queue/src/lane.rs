use std::{
    future::poll_fn,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use tidegate_core::{Batch, BatchSize, Class, Delivery, Error, Lease, LeaseState, Outcomes};
use tokio::{task::coop::consume_budget, time::Instant};
use tower_service::Service;
use tracing::{Instrument as _, Span};

use crate::{
    QueueConfig, QueueError,
    shared::{Limits, Shared},
};

/// Runs the batches of one lane, one at a time.
pub(crate) struct Worker<T> {
    tenure: Tenure<T>,
    batch_bytes: usize,
    batch_size: BatchSize,
    // A buffer.
    wakes: Vec<Waker>,
}

/// A lane, with the slots of the batch that its worker has taken.
///
/// It is closed when the worker ends, however that ends.
struct Tenure<T> {
    shared: Arc<Shared<T>>,
    lane: usize,
    slots: Vec<usize>,
    // So many of the slots have their answer.
    answered: usize,
}

/// Fences the queue when its lease stops being active, so that what waits
/// behind a running batch is answered at once (I5).
///
/// The clock alone wakes nobody: a lease that ran out is seen here when
/// somebody else looks at it, and by each lane before it begins a batch.
pub(crate) async fn watch<T>(shared: Arc<Shared<T>>) {
    let lease = poll_fn(|cx| shared.poll_lease(cx)).await;
    lease.reached(LeaseState::Draining).await;
    shared.fence(&[], &unstarted(&lease));
}

// ===== impl Worker =====

impl<T> Worker<T> {
    pub(crate) fn new(lane: usize, config: &QueueConfig, shared: Arc<Shared<T>>) -> Self {
        Self {
            tenure: Tenure { shared, lane, slots: Vec::new(), answered: 0 },
            batch_bytes: config.batch_bytes,
            batch_size: BatchSize::new(config.batch_records, config.batch_time),
            wakes: Vec::new(),
        }
    }

    /// Runs until the lane is closed, or closes it when a delivery fails.
    pub(crate) async fn run<S>(mut self, mut service: S)
    where
        S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    {
        while let Some((batch, span)) = self.next().await {
            if self.settle(&mut service, batch, span).await.is_break() {
                return;
            }
        }
    }

    /// The next batch: what waits, once anything does.
    async fn next(&mut self) -> Option<(Batch<Delivery<T>>, Span)> {
        // A stack that never waits would otherwise keep its thread to itself.
        consume_budget().await;
        let limits = Limits { records: self.batch_size.limit(), bytes: self.batch_bytes };
        let Tenure { shared, lane, slots, answered } = &mut self.tenure;
        slots.clear();
        *answered = 0;
        let taken = poll_fn(|cx| shared.poll_take(*lane, limits, slots, cx)).await?;
        let batch = Batch::new(taken.deliveries)?;
        // The record's own span is that of a batch of one.
        let span = taken.span.filter(|_| batch.len() == 1).map_or_else(Span::none, |span| *span);
        Some((batch, span))
    }

    /// Answers every delivery of a batch, in order, taking the batch apart
    /// where it fails.
    ///
    /// It breaks when the lane is closed.
    async fn settle<S>(
        &mut self,
        service: &mut S,
        batch: Batch<Delivery<T>>,
        span: Span,
    ) -> ControlFlow<()>
    where
        S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    {
        let lease = batch.first().lease.clone();
        if !lease.is_active() {
            return self.leave(&lease);
        }
        let whole = batch.len();
        let mut part = batch;
        // Parts still to run, the first one last. They are in the order of the
        // slots, so the next slot always belongs to the next outcome.
        let mut parts = Vec::new();
        loop {
            let count = part.len();
            match attempt(service, &part).instrument(span.clone()).await {
                Ok((outcomes, running)) => {
                    if count == whole {
                        self.batch_size.observe(count, running);
                    }
                    self.answer(outcomes, running);
                }
                Err(error) if error.class() == Class::Poison && count > 1 => {
                    self.tenure.shared.metrics().bisected();
                    tracing::debug!(records = count, "taking a poisoned batch apart");
                    parts.extend(take_apart(part, &error));
                }
                Err(error) => return self.halt(&lease, count, &error),
            }
            let Some(next) = parts.pop() else { return ControlFlow::Continue(()) };
            // What was rolled back is begun again only while the lease is held.
            if !lease.is_held() {
                return self.leave(&lease);
            }
            part = next;
        }
    }

    fn answer(&mut self, outcomes: Outcomes, running: Duration) {
        let Tenure { shared, slots, answered, .. } = &mut self.tenure;
        let count = outcomes.len();
        let slots = &slots[*answered..*answered + count];
        shared.answer(slots, outcomes.into_iter(), &mut self.wakes);
        *answered += count;
        shared.metrics().batch(count, running);
    }

    /// Gives the error to the next `count` deliveries, and stops all that is
    /// behind them (I14).
    fn halt(&mut self, lease: &Lease, count: usize, error: &Error) -> ControlFlow<()> {
        let Tenure { shared, lane, slots, answered } = &mut self.tenure;
        shared.metrics().halted(error.class());
        let partition = lease.partition();
        match error.class() {
            Class::Fenced => {
                tracing::debug!(%partition, lane, error = error.chain(), "a lane stopped");
            }
            class => {
                tracing::warn!(%partition, lane, %class, error = error.chain(), "a lane stopped");
            }
        }
        let left = &slots[*answered..];
        let halted = QueueError::Halted(error.clone()).into();
        shared.fail(*lane, left.split_at(count), error, &halted);
        *answered = slots.len();
        ControlFlow::Break(())
    }

    /// Leaves what is not begun to the next owner.
    fn leave(&mut self, lease: &Lease) -> ControlFlow<()> {
        let Tenure { shared, slots, answered, .. } = &mut self.tenure;
        shared.fence(&slots[*answered..], &unstarted(lease));
        *answered = slots.len();
        ControlFlow::Break(())
    }
}

// ===== impl Tenure =====

impl<T> Drop for Tenure<T> {
    fn drop(&mut self) {
        let reason = QueueError::Dropped.into();
        self.shared.fail(self.lane, (&[], &self.slots[self.answered..]), &reason, &reason);
    }
}

fn unstarted(lease: &Lease) -> Error {
    QueueError::Unstarted { partition: lease.partition().clone(), state: lease.state() }.into()
}

/// Runs one batch, and says for how long it ran.
///
/// A panic of the stack below ends the lane, not the process.
async fn attempt<T, S>(
    service: &mut S,
    batch: &Batch<Delivery<T>>,
) -> Result<(Outcomes, Duration), Error>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
{
    let mut running = pin!(call(service, batch));
    poll_fn(|cx| {
        // A service that panicked is not called again, so nobody sees what it
        // left half done.
        let poll = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
        poll.unwrap_or_else(|payload| Poll::Ready(Err(QueueError::panicked(&*payload).into())))
    })
    .await
}

async fn call<T, S>(
    service: &mut S,
    batch: &Batch<Delivery<T>>,
) -> Result<(Outcomes, Duration), Error>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let started = Instant::now();
    let outcomes = service.call(batch.clone()).await.map_err(Into::into)?;
    if outcomes.len() != batch.len() {
        return Err(
            QueueError::Miscounted { deliveries: batch.len(), outcomes: outcomes.len() }.into()
        );
    }
    Ok((outcomes, started.elapsed().saturating_sub(batch.time_waited())))
}

/// Splits a batch before and after its culprit, or else in the middle.
///
/// The parts come last to first, as a stack wants them.
fn take_apart<T>(
    batch: Batch<Delivery<T>>,
    error: &Error,
) -> impl Iterator<Item = Batch<Delivery<T>>> + use<T> {
    let culprit = error
        .culprit()
        .and_then(|culprit| batch.iter().position(|delivery| culprit.is(&delivery.record)));
    let Some(culprit) = culprit else {
        let middle = batch.len() / 2;
        let (left, right) = batch.split_at(middle);
        return [right, left, None].into_iter().flatten();
    };
    let (left, rest) = batch.split_at(culprit);
    let (alone, right) = rest.map_or((None, None), |rest| rest.split_at(1));
    [right, alone, left].into_iter().flatten()
}
