use std::{
    fmt,
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use tidegate_core::{Batch, Delivery, Error, Lease, LeaseState, Outcomes};
use tidegate_inbox::{Inbox, Retention};
use tidegate_sequencer::Sequencer;
use tidegate_sql::{EffectService, InTransaction};
use tokio::{
    select,
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_service::Service;

/// Keeps the tables of a namespace in order while its partitions are worked on.
///
/// - At each assignment, and from time to time, it applies parked deltas that
///   could go on: what a process left that ended in between, and what a person
///   set free.
/// - It gives up entities that have waited for longer than the sequencer's bound:
///   what is parked of them becomes dead letters.
/// - Where it is told to, it forgets messages that are long decided.
///
/// It runs beside the stack, in transactions of its own, for as long as the
/// lease is held.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Upkeep, prelude::*};
///
/// async fn apply(_: &Txn, _: &u64) -> Result<(), DbErr> {
///     Ok(())
/// }
///
/// // In the make-service: `upkeep.watch(&assignment.lease())`.
/// fn upkeep(database: Database, sequencer: Sequencer<u64>) -> Upkeep<u64> {
///     Upkeep::new(Inbox::new(database), sequencer, effect_fn(apply))
///         .with_retention(Retention::default())
///         .with_interval(Duration::from_secs(300))
/// }
/// ```
pub struct Upkeep<T, S = EffectService<T>> {
    shared: Arc<Shared<T, S>>,
}

struct Shared<T, S> {
    inbox: Inbox,
    sequencer: Sequencer<T>,
    // Services need not be `Sync`: it is only cloned here.
    service: StdMutex<S>,
    retention: Option<Retention>,
    interval: Duration,
    // The namespace is looked after by one task at a time, and not again by the
    // next partition's: when that was last.
    namespace: Mutex<Option<Instant>>,
}

// ===== impl Upkeep =====

impl<T, S> Upkeep<T, S> {
    /// Looks after the namespace of `inbox`, once a minute.
    ///
    /// `service` is what stands under the sequencer in the stack: the effect, in
    /// an [`EpochGuardLayer`](crate::sql::EpochGuardLayer) if the stack has one.
    pub fn new(inbox: Inbox, sequencer: Sequencer<T>, service: S) -> Self {
        let shared = Shared {
            inbox,
            sequencer,
            service: StdMutex::new(service),
            retention: None,
            interval: Duration::from_secs(60),
            namespace: Mutex::new(None),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl<T, S: Clone> Upkeep<T, S> {
    /// Forgets messages that are long decided. Without it, all are remembered.
    #[must_use]
    pub fn with_retention(self, retention: Retention) -> Self {
        self.with(|shared| shared.retention = Some(retention))
    }

    /// Sets how often it looks.
    #[must_use]
    pub fn with_interval(self, interval: Duration) -> Self {
        self.with(|shared| shared.interval = interval)
    }

    fn with(self, change: impl FnOnce(&mut Shared<T, S>)) -> Self {
        let Shared { inbox, sequencer, retention, interval, .. } = &*self.shared;
        let mut shared = Shared {
            inbox: inbox.clone(),
            sequencer: sequencer.clone(),
            service: StdMutex::new(self.shared.service()),
            retention: *retention,
            interval: *interval,
            namespace: Mutex::new(None),
        };
        change(&mut shared);
        Self { shared: Arc::new(shared) }
    }
}

impl<T, S> Upkeep<T, S>
where
    T: Send + Sync + 'static,
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes> + Clone + Send + 'static,
    S::Error: Into<Error>,
    S::Future: Send,
{
    /// Starts a task that works for as long as the lease is held.
    ///
    /// Failures are logged, and tried again at the next time.
    ///
    /// # Panics
    ///
    /// When it is called outside of a Tokio runtime.
    pub fn watch(&self, lease: &Lease) -> JoinHandle<()> {
        let (shared, lease) = (Arc::clone(&self.shared), lease.clone());
        tokio::spawn(async move {
            let ended = lease.reached(LeaseState::Draining);
            select! {
                () = ended => {}
                () = shared.run(&lease) => {}
            }
        })
    }
}

impl<T, S> Shared<T, S>
where
    T: Send + Sync + 'static,
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes> + Clone + Send,
    S::Error: Into<Error>,
    S::Future: Send,
{
    async fn run(&self, lease: &Lease) {
        loop {
            if let Err(error) = self.look(lease).await {
                let partition = lease.partition();
                tracing::warn!(%partition, cause = error.chain(), "the upkeep failed for now");
            }
            sleep(self.interval).await;
        }
    }

    async fn look(&self, lease: &Lease) -> Result<(), Error> {
        if let Some(retention) = &self.retention {
            self.inbox.prune(lease, retention).await?;
        }
        let mut last = self.namespace.lock().await;
        // A little less than the interval, lest each second look comes too early.
        if last.is_some_and(|at| at.elapsed() < self.interval / 2) {
            return Ok(());
        }
        let database = self.inbox.database();
        self.sequencer.sweep(database, lease, self.service()).await?;
        self.sequencer.give_up_aged(database).await?;
        *last = Some(Instant::now());
        Ok(())
    }
}

impl<T, S: Clone> Shared<T, S> {
    fn service(&self) -> S {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T, S> Clone for Upkeep<T, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T, S> fmt::Debug for Upkeep<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upkeep")
            .field("retention", &self.shared.retention)
            .field("interval", &self.shared.interval)
            .finish_non_exhaustive()
    }
}
