use std::pin::Pin;

use tidegate_core::{Batch, Class, Condition, Delivery, Error, Lease, LeaseState, Outcomes};
use tokio::time::{Instant, timeout_at};
use tower::retry::{
    self,
    backoff::{Backoff as _, ExponentialBackoff},
};

use crate::{Backoff, metrics::Metrics};

/// One try of a batch.
#[derive(Debug)]
pub(crate) struct Try<T> {
    pub(crate) batch: Batch<Delivery<T>>,
    /// Why the try before it failed.
    pub(crate) failed: Option<Error>,
}

/// Says whether a batch is tried again, and when.
///
/// Tower makes a clone for each batch.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    backoff: Backoff,
    // Begun by the first failure.
    waits: Option<ExponentialBackoff>,
    metrics: Metrics,
}

// ===== impl Try =====

impl<T> Try<T> {
    pub(crate) fn first(batch: Batch<Delivery<T>>) -> Self {
        Self { batch, failed: None }
    }
}

// ===== impl Policy =====

impl Policy {
    pub(crate) fn new(backoff: Backoff, metrics: Metrics) -> Self {
        Self { backoff, waits: None, metrics }
    }

    /// A batch is not tried again: it succeeded, or it never will, here.
    fn settle(&self, lease: &Lease, result: &Result<Outcomes, Error>) {
        if self.waits.is_none() {
            return;
        }
        match result.as_ref().map_err(Error::class) {
            Ok(_) => self.metrics.recovered(),
            Err(Class::Transient) => self.metrics.gave_up(),
            Err(_) => {}
        }
        // Other conditions are said, and taken back, by who knows of them.
        if lease.condition() == Condition::Retrying {
            lease.set_condition(Condition::Running);
        }
    }

    /// A batch is tried again.
    fn announce<T>(&self, batch: &Batch<Delivery<T>>, error: &Error) {
        self.metrics.retried();
        let Delivery { lease, record, .. } = batch.first();
        // A cause that is known more closely than that is left standing.
        if lease.condition() == Condition::Running {
            lease.set_condition(Condition::Retrying);
        }
        let (partition, offset, records) = (&record.partition, record.offset, batch.len());
        let error = error.chain();
        if self.waits.is_none() {
            tracing::warn!(%partition, offset, records, error, "a batch failed and is tried again");
        } else {
            tracing::debug!(%partition, offset, records, error, "a batch failed again");
        }
    }
}

impl<T: Send + Sync + 'static> retry::Policy<Try<T>, Outcomes, Error> for Policy {
    // Boxed: it has no name, and a retry is not the usual case.
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(
        &mut self,
        request: &mut Try<T>,
        result: &mut Result<Outcomes, Error>,
    ) -> Option<Self::Future> {
        let lease = request.batch.first().lease.clone();
        let error = match result {
            Err(error) if error.class() == Class::Transient && lease.is_active() => error,
            result => {
                self.settle(&lease, result);
                return None;
            }
        };
        self.announce(&request.batch, error);
        request.failed = Some(error.clone());
        let batch = request.batch.clone();
        let started = Instant::now();
        let waits = self.waits.get_or_insert_with(|| self.backoff.waits());
        let until = waits.next_backoff().deadline();
        Some(Box::pin(async move {
            // Over at once when a drain begins: the gate then makes no try.
            let _ = timeout_at(until, lease.reached(LeaseState::Draining)).await;
            batch.waited(started.elapsed());
        }))
    }

    fn clone_request(&mut self, request: &Try<T>) -> Option<Try<T>> {
        // Copies pointers.
        Some(Try::first(request.batch.clone()))
    }
}
