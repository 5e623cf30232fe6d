use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tidegate_core::{Class, DeadLetters, Error, Lease, Record};
use tokio::sync::{Notify, futures::OwnedNotified};

use crate::{NotHeld, metrics::Metrics, place::Place};

/// A record that will be buried if it proves to be poison.
pub(crate) struct Suspect<D> {
    pub(crate) letters: D,
    pub(crate) lease: Arc<Lease>,
    pub(crate) record: Record,
    pub(crate) place: Place,
    /// Who waits for the decision; nobody under a queue, where the lane does.
    pub(crate) undecided: Option<Arc<Undecided>>,
    pub(crate) metrics: Metrics,
}

/// How many burials of a service are undecided.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    burials: AtomicUsize,
    decided: Arc<Notify>,
}

/// One burial that is undecided, until this is dropped.
pub(crate) struct Decision(Arc<Undecided>);

/// Waits until no burial is undecided.
#[derive(Default)]
pub(crate) struct Gate {
    undecided: Arc<Undecided>,
    waiting: Option<Pin<Box<OwnedNotified>>>,
}

// ===== impl Suspect =====

impl<D: DeadLetters> Suspect<D> {
    /// Whether the error is about this record, and about nothing else.
    pub(crate) fn is_convicted(&self, error: &Error) -> bool {
        let blamed = error.culprit().is_none_or(|culprit| culprit.is(&self.record));
        error.class() == Class::Poison && blamed
    }

    /// Says that a burial begins, also before it is polled.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.undecided.clone().map(Decision::pending)
    }

    pub(crate) async fn bury(self, error: Error, decision: Option<Decision>) -> Result<(), Error> {
        let Self { letters, lease, record, place, metrics, .. } = self;
        let _decision = decision;
        if !lease.is_held() {
            let (partition, state) = (lease.partition().clone(), lease.state());
            return Err(NotHeld { partition, state }.into());
        }
        letters.bury(&lease, &record, &error).await?;
        metrics.buried(place);
        let (partition, offset) = (&record.partition, record.offset);
        tracing::warn!(%partition, offset, cause = error.chain(), "a record was buried");
        Ok(())
    }
}

// ===== impl Decision =====

impl Decision {
    fn pending(undecided: Arc<Undecided>) -> Self {
        undecided.burials.fetch_add(1, Ordering::AcqRel);
        Self(undecided)
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        if self.0.burials.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.decided.notify_waiters();
        }
    }
}

// ===== impl Gate =====

impl Gate {
    pub(crate) fn undecided(&self) -> &Arc<Undecided> {
        &self.undecided
    }

    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.undecided.burials.load(Ordering::Acquire) == 0 {
                self.waiting = None;
                return Poll::Ready(());
            }
            let Some(waiting) = &mut self.waiting else {
                // Looks again: a decision from here on is not missed.
                let decided = Arc::clone(&self.undecided.decided);
                self.waiting = Some(Box::pin(decided.notified_owned()));
                continue;
            };
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
    }
}

impl Clone for Gate {
    fn clone(&self) -> Self {
        Self { undecided: Arc::clone(&self.undecided), waiting: None }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("undecided", &self.undecided).finish_non_exhaustive()
    }
}
