use std::{future::poll_fn, mem, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tidegate_core::{
    Batch, BatchSize, Class, Delivery, Error, Lane, Lanes, Lease, LeaseState, Outcomes, Volume,
};
use tokio::{sync::SetOnce, task::coop::consume_budget, time::Instant};
use tower_service::Service;
use tracing::{Instrument as _, Span};

use crate::{QueueConfig, QueueError, metrics::Metrics};

/// A delivery that waits in a lane.
pub(crate) struct Queued<T> {
    pub(crate) delivery: Arc<Delivery<T>>,
    // A queue is a task boundary, and spans do not cross those by themselves.
    pub(crate) span: Option<Box<Span>>,
}

/// Runs the batches of one lane, one at a time.
pub(crate) struct Worker<S, T> {
    inner: S,
    lane: Lane<Queued<T>>,
    batch_bytes: usize,
    batch_size: BatchSize,
    // A buffer.
    queued: Vec<Queued<T>>,
    metrics: Metrics,
}

/// Closes the lanes when their lease stops being active, so that what waits
/// behind a running batch is answered at once (I5).
///
/// The clock alone wakes nobody: a lease that ran out is seen here when
/// somebody else looks at it, and by each lane before it begins a batch.
pub(crate) async fn watch<T>(lease: Arc<SetOnce<Lease>>, lanes: Lanes<T>, metrics: Metrics) {
    let lease = lease.wait().await;
    lease.reached(LeaseState::Draining).await;
    metrics.unstarted(lanes.close(&unstarted(lease)));
}

// ===== impl Worker =====

impl<S, T> Worker<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
{
    pub(crate) fn new(
        inner: S,
        lane: Lane<Queued<T>>,
        config: &QueueConfig,
        metrics: Metrics,
    ) -> Self {
        let Volume { records, bytes } = config.batch;
        let batch_size = BatchSize::new(records, config.batch_time);
        Self { inner, lane, batch_bytes: bytes, batch_size, queued: Vec::new(), metrics }
    }

    /// Runs until the lane is closed, from outside or by a delivery that fails.
    pub(crate) async fn run(mut self) {
        loop {
            // A stack that never waits would otherwise keep its thread to itself.
            consume_budget().await;
            let most = Volume { records: self.batch_size.limit(), bytes: self.batch_bytes };
            self.lane.take(most, &mut self.queued).await;
            // The record's own span is that of a batch of one.
            let span = match &mut *self.queued {
                [one] => mem::take(&mut one.span).map_or_else(Span::none, |span| *span),
                _ => Span::none(),
            };
            let deliveries = self.queued.drain(..).map(|queued| queued.delivery).collect();
            let Some(batch) = Batch::new(deliveries) else { return };
            self.settle(batch).instrument(span).await;
        }
    }

    /// Answers every delivery of a batch, in order, taking the batch apart
    /// where it fails.
    async fn settle(&mut self, batch: Batch<Delivery<T>>) {
        let lease = Arc::clone(&batch.first().lease);
        if !lease.is_active() {
            return self.leave(&lease);
        }
        let whole = batch.len();
        let mut part = batch;
        // Parts still to run, the first one last.
        let mut parts = Vec::new();
        loop {
            let count = part.len();
            match self.attempt(&part).await {
                Ok((outcomes, running)) => {
                    if count == whole {
                        self.batch_size.observe(count, running);
                    }
                    self.lane.answer(&outcomes);
                    self.metrics.batch(count, running);
                }
                Err(error) if error.class() == Class::Poison && count > 1 => {
                    self.metrics.bisected();
                    tracing::debug!(records = count, "taking a poisoned batch apart");
                    parts.extend(part.take_apart(error.culprit()).into_iter().rev());
                }
                Err(error) => return self.halt(&lease, count, &error),
            }
            let Some(next) = parts.pop() else { return };
            // What was rolled back is begun again only while the lease is held.
            if !lease.is_held() {
                return self.leave(&lease);
            }
            part = next;
        }
    }

    /// Runs one batch, and says for how long it ran.
    ///
    /// A panic of the stack below ends the lane, not the process.
    async fn attempt(&mut self, batch: &Batch<Delivery<T>>) -> Result<(Outcomes, Duration), Error> {
        let inner = &mut self.inner;
        let running = async {
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let started = Instant::now();
            let outcomes = inner.call(batch.clone()).await.map_err(Into::into)?;
            let (deliveries, outcomes_len) = (batch.len(), outcomes.len());
            if outcomes_len != deliveries {
                return Err(QueueError::Miscounted { deliveries, outcomes: outcomes_len }.into());
            }
            Ok((outcomes, started.elapsed().saturating_sub(batch.time_waited())))
        };
        // A service that panicked is not called again, so nobody sees what it
        // left half done.
        let caught = AssertUnwindSafe(running).catch_unwind().await;
        caught.unwrap_or_else(|payload| Err(QueueError::panicked(&*payload).into()))
    }

    /// Gives the error to the next `count` deliveries, and stops all that is
    /// behind them (I14).
    fn halt(&mut self, lease: &Lease, count: usize, error: &Error) {
        let (class, partition, lane) = (error.class(), lease.partition(), self.lane.index());
        self.metrics.halted(class);
        if class == Class::Fenced {
            tracing::debug!(%partition, lane, error = error.chain(), "a lane stopped");
        } else {
            tracing::warn!(%partition, lane, %class, error = error.chain(), "a lane stopped");
        }
        self.lane.fail(count, error);
        self.lane.close(&QueueError::Halted(error.clone()).into());
    }

    /// Leaves what is not begun to the next owner.
    fn leave(&mut self, lease: &Lease) {
        self.metrics.unstarted(self.lane.close(&unstarted(lease)));
    }
}

fn unstarted(lease: &Lease) -> Error {
    QueueError::Unstarted { partition: lease.partition().clone(), state: lease.state() }.into()
}
