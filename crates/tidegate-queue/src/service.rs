use std::{
    fmt,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use tidegate_core::{Batch, Delivery, Error, Intake, Lanes, Lease, Outcome, Outcomes};
use tokio::{sync::SetOnce, task::JoinSet};
use tower_service::Service;
use tracing::{Instrument as _, Span, level_filters::LevelFilter};

use crate::{
    QueueConfig, QueueError,
    future::ResponseFuture,
    lane::{self, Queued, Worker},
    layer::KeyOf,
    metrics::Metrics,
};

/// Queues deliveries for lanes that run them in batches.
///
/// `poll_ready` reserves a place, `call` spends it, and the place is given back
/// when the answer is taken. A clone shares the queue but not the reservation.
///
/// The lanes are tasks. They start with the first `poll_ready`, each with a
/// clone of the inner service, and end with the last clone of the queue.
///
/// See the [crate docs](crate) for an example.
pub struct QueueService<S, T> {
    inner: S,
    intake: Intake<Queued<T>>,
    queue: Arc<Queue<T>>,
}

struct Queue<T> {
    config: QueueConfig,
    key_of: KeyOf<T>,
    metrics: Metrics,
    lanes: Lanes<Queued<T>>,
    // Known from the first delivery.
    lease: Arc<SetOnce<Lease>>,
    // Aborts the lanes on drop.
    workers: OnceLock<JoinSet<()>>,
}

// ===== impl QueueService =====

impl<S, T> QueueService<S, T> {
    pub(crate) fn new(inner: S, config: QueueConfig, key_of: KeyOf<T>, metrics: Metrics) -> Self {
        let gauges = metrics.clone();
        let report = move |before, now| gauges.in_flight(before, now);
        let lanes = Lanes::new(config.lanes, config.in_flight, report);
        let intake = lanes.intake();
        let (lease, workers) = (Arc::default(), OnceLock::new());
        let queue = Arc::new(Queue { config, key_of, metrics, lanes, lease, workers });
        Self { inner, intake, queue }
    }

    /// A reference to the inner service, of which each lane has a clone.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, T> Service<Delivery<T>> for QueueService<S, T>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    S: Clone + Send + 'static,
    S::Future: Send,
    T: Send + Sync + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = ResponseFuture<T>;

    /// Waits for a place.
    ///
    /// # Panics
    ///
    /// The first time, outside of a Tokio runtime: the lanes are tasks.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self { inner, intake, queue } = self;
        queue.workers.get_or_init(|| {
            let Queue { config, metrics, lanes, lease, .. } = &**queue;
            let (mut tasks, span) = (JoinSet::new(), Span::current());
            for index in 0..config.lanes {
                let lane = lanes.lane(index, QueueError::Dropped.into());
                let worker = Worker::new(inner.clone(), lane, config, metrics.clone());
                tasks.spawn(worker.run().instrument(span.clone()));
            }
            let watch = lane::watch(Arc::clone(lease), lanes.clone(), metrics.clone());
            tasks.spawn(watch.instrument(span));
            tasks
        });
        // A place is all that is reserved here: the lanes ask the inner service
        // for its readiness, with a batch in hand. And it is never an error:
        // what a lane cannot do, it says in its answers.
        intake.poll_reserve(cx).map(Ok)
    }

    /// Queues a delivery in the place that was reserved.
    ///
    /// # Panics
    ///
    /// When `poll_ready` was not ready before.
    fn call(&mut self, delivery: Delivery<T>) -> ResponseFuture<T> {
        let Self { intake, queue, .. } = self;
        let bytes = delivery.record.size();
        let serves = queue.lease.get().unwrap_or_else(|| {
            // Unless a clone is first.
            drop(queue.lease.set(Lease::clone(&delivery.lease)));
            queue.lease.get().expect("one of them has set it")
        });
        if *serves != *delivery.lease {
            let error = QueueError::OtherLease { serves: serves.partition().clone() };
            return ResponseFuture::new(intake.refuse(bytes, error.into()));
        }
        let lane = intake.lane_of((queue.key_of)(&delivery));
        // Spans of single records are for debugging. Where nobody looks, what
        // they cost is this comparison.
        let span = (LevelFilter::current() >= LevelFilter::DEBUG).then(Span::current).map(Box::new);
        let queued = Queued { delivery: Arc::new(delivery), span };
        ResponseFuture::new(intake.push(lane, queued, bytes))
    }
}

impl<S: Clone, T> Clone for QueueService<S, T> {
    fn clone(&self) -> Self {
        let Self { inner, intake, queue } = self;
        Self { inner: inner.clone(), intake: intake.clone(), queue: Arc::clone(queue) }
    }
}

impl<S, T> fmt::Debug for QueueService<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueService").field("config", &self.queue.config).finish_non_exhaustive()
    }
}
