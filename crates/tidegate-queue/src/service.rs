use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use tidegate_core::{Batch, Delivery, Error, Outcome, Outcomes};
use tokio::task::JoinSet;
use tower_service::Service;
use tracing::{Instrument as _, Span, level_filters::LevelFilter};

use crate::{
    QueueConfig,
    future::ResponseFuture,
    lane::{self, Worker},
    layer::KeyOf,
    metrics::Metrics,
    shared::{Intake, Shared},
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
    intake: Intake<T>,
    queue: Arc<Queue<T>>,
}

struct Queue<T> {
    config: QueueConfig,
    key_of: KeyOf<T>,
    // Of random keys, so that no producer can choose who shares a lane.
    hasher: RandomState,
    // Aborts the lanes on drop.
    workers: OnceLock<JoinSet<()>>,
}

// ===== impl QueueService =====

impl<S, T> QueueService<S, T> {
    pub(crate) fn new(inner: S, config: &QueueConfig, key_of: KeyOf<T>, metrics: Metrics) -> Self {
        let intake = Intake::new(Arc::new(Shared::new(config, metrics)));
        let (hasher, workers) = (RandomState::new(), OnceLock::new());
        let queue = Arc::new(Queue { config: config.clone(), key_of, hasher, workers });
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
        self.queue.start(&self.inner, &self.intake);
        // A place is all that is reserved here: the lanes ask the inner service
        // for its readiness, with a batch in hand. And it is never an error:
        // what a lane cannot do, it says in its answers.
        self.intake.poll_reserve(cx).map(Ok)
    }

    /// Queues a delivery in the place that was reserved.
    ///
    /// # Panics
    ///
    /// When `poll_ready` was not ready before.
    fn call(&mut self, delivery: Delivery<T>) -> ResponseFuture<T> {
        let lane = self.queue.lane_of(&delivery);
        // Spans of single records are for debugging. Where nobody looks, what
        // they cost is this comparison.
        let span = (LevelFilter::current() >= LevelFilter::DEBUG).then(Span::current).map(Box::new);
        let slot = self.intake.push(lane, delivery, span);
        ResponseFuture::new(Arc::clone(self.intake.shared()), slot)
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

// ===== impl Queue =====

impl<T> Queue<T> {
    fn lane_of(&self, delivery: &Delivery<T>) -> usize {
        if self.config.lanes == 1 {
            return 0;
        }
        let hash = self.hasher.hash_one((self.key_of)(delivery));
        usize::try_from(hash % self.config.lanes as u64).expect("it is less than a usize")
    }

    /// Starts the lanes, once.
    fn start<S>(&self, inner: &S, intake: &Intake<T>)
    where
        S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
        S: Clone + Send + 'static,
        S::Future: Send,
        T: Send + Sync + 'static,
    {
        self.workers.get_or_init(|| {
            let mut tasks = JoinSet::new();
            let span = Span::current();
            for lane in 0..self.config.lanes {
                let worker = Worker::new(lane, &self.config, Arc::clone(intake.shared()));
                tasks.spawn(worker.run(inner.clone()).instrument(span.clone()));
            }
            tasks.spawn(lane::watch(Arc::clone(intake.shared())).instrument(span));
            tasks
        });
    }
}
