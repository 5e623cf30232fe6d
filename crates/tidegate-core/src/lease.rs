mod epoch;
mod owner;
mod word;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering},
    },
    task::Waker,
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};

use self::word::Word;
pub use self::{
    epoch::{Epoch, TopicId},
    owner::LeaseOwner,
};
use super::TopicPartition;
use crate::sync::{AtomicU64, Ordering as WordOrdering};

/// Where a lease is in its life. It never goes backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LeaseState {
    /// New work is admitted.
    Active = 0,
    /// Admitted work may finish; nothing new is admitted.
    Draining = 1,
    /// No membership proof has come for a session timeout. No work goes on;
    /// what is finished may still be committed.
    Suspended = 2,
    /// Given back after a drain.
    Released = 3,
    /// Taken away without one.
    Lost = 4,
}

/// What keeps a partition from moving, as far as its layers know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Condition {
    /// Nothing.
    #[default]
    Running = 0,
    /// A batch failed for now, and is tried again.
    Retrying = 1,
    /// The database cannot be reached.
    DatabaseDown = 2,
    /// Too many early deltas are parked.
    WaitingForGap = 3,
}

/// This process's right to work on a partition for one stack.
///
/// A handle that watches; only the [`LeaseOwner`] changes the state. It is held
/// while it is active or draining, and while its last *membership proof* is
/// younger than the session timeout: that is seen by the clock, also by whoever
/// wakes up after a long pause before the source has run.
#[derive(Clone)]
pub struct Lease {
    shared: Arc<Shared>,
}

/// What a lease is granted on.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// How long a membership proof counts; without, for ever. Counted from
    /// [`since`](Self::since).
    pub session: Option<Duration>,
    /// When the broker gave the assignment; the time of the grant if unset.
    pub since: Option<Instant>,
    /// The id of the topic, where it is known.
    pub topic_id: Option<TopicId>,
    /// The offset that the broker has acknowledged for the group.
    pub acknowledged: Option<i64>,
    /// Woken when a layer wants a new membership proof soon.
    pub waker: Option<Waker>,
}

struct Shared {
    partition: TopicPartition,
    epoch: Epoch,
    topic_id: Option<TopicId>,
    session: Option<Duration>,
    // Times are counted from here: when the proof was sent that came first.
    origin: Instant,
    word: Word,
    // When the newest proof was sent, in nanoseconds since `origin`.
    proof: AtomicU64,
    acknowledged: AtomicI64,
    condition: AtomicU8,
    demanded: AtomicBool,
    waker: Option<Waker>,
    // An `Arc` of its own, so that a wait can own it and have a name.
    changed: Arc<Notify>,
}

// No Kafka offset is negative.
const NONE: i64 = -1;

// ===== impl Lease =====

impl Lease {
    /// Grants a lease that no clock ends: the source keeps the owner, all
    /// others watch.
    #[must_use]
    pub fn grant(partition: TopicPartition, epoch: Epoch) -> (LeaseOwner, Self) {
        Self::grant_on(partition, epoch, Terms::default())
    }

    /// Grants a lease on terms.
    #[must_use]
    pub fn grant_on(partition: TopicPartition, epoch: Epoch, terms: Terms) -> (LeaseOwner, Self) {
        let Terms { session, since, topic_id, acknowledged, waker } = terms;
        let shared = Shared {
            partition,
            epoch,
            topic_id,
            session,
            origin: since.unwrap_or_else(Instant::now),
            word: Word::active(session.map_or(word::NEVER, nanos)),
            proof: AtomicU64::new(0),
            acknowledged: AtomicI64::new(acknowledged.unwrap_or(NONE)),
            condition: AtomicU8::new(Condition::Running as u8),
            demanded: AtomicBool::new(false),
            waker,
            changed: Arc::default(),
        };
        let lease = Self { shared: Arc::new(shared) };
        (LeaseOwner::new(lease.clone()), lease)
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        &self.shared.partition
    }

    /// Whose assignment it is.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.shared.epoch
    }

    /// The id of the topic, where it is known.
    #[must_use]
    pub fn topic_id(&self) -> Option<&TopicId> {
        self.shared.topic_id.as_ref()
    }

    /// The state now, by the clock.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        let (state, suspended) = self.shared.word.observe(|| nanos(self.shared.origin.elapsed()));
        if suspended {
            self.shared.changed.notify_waiters();
        }
        state
    }

    /// Whether new work may be admitted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state() == LeaseState::Active
    }

    /// Whether admitted work may go on.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() <= LeaseState::Draining
    }

    /// When the newest membership proof was sent; at first, when the assignment
    /// came.
    #[must_use]
    pub fn proof(&self) -> Instant {
        self.shared.origin + Duration::from_nanos(self.shared.proof.load(WordOrdering::Acquire))
    }

    /// Asks for a membership proof soon.
    ///
    /// It has come when [`proof`](Self::proof) is later than this call, which
    /// [`changed`](Self::changed) announces.
    pub fn demand_proof(&self) {
        self.shared.demanded.store(true, Ordering::Release);
        if let Some(waker) = &self.shared.waker {
            waker.wake_by_ref();
        }
    }

    /// The offset that the broker has acknowledged for the group, if it is
    /// known to have acknowledged one.
    #[must_use]
    pub fn acknowledged(&self) -> Option<i64> {
        let offset = self.shared.acknowledged.load(Ordering::Acquire);
        (offset != NONE).then_some(offset)
    }

    /// What keeps the partition from moving.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self.shared.condition.load(Ordering::Relaxed) {
            0 => Condition::Running,
            1 => Condition::Retrying,
            2 => Condition::DatabaseDown,
            _ => Condition::WaitingForGap,
        }
    }

    /// Says what keeps the partition from moving, for its status.
    pub fn set_condition(&self, condition: Condition) {
        // Read first: it is said after each batch, and rarely news.
        if self.condition() != condition {
            self.shared.condition.store(condition as u8, Ordering::Relaxed);
        }
    }

    /// Resolves at the next change of state, or membership proof.
    ///
    /// Look after making this future and before awaiting it: a change in
    /// between is then not missed. The clock alone wakes nobody; whoever looks
    /// first at a lease that has run out does.
    pub fn changed(&self) -> OwnedNotified {
        Arc::clone(&self.shared.changed).notified_owned()
    }

    /// Waits until the state is `state` or later.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn reached(&self, state: LeaseState) {
        loop {
            let changed = self.changed();
            if self.state() >= state {
                return;
            }
            changed.await;
        }
    }
}

impl PartialEq for Lease {
    /// Whether they are handles on one lease.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Lease {}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("partition", self.partition())
            .field("epoch", self.epoch())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

// ===== impl LeaseState =====

impl LeaseState {
    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Suspended => "suspended",
            Self::Released => "released",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
