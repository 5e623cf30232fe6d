//! Forgetting messages that are long decided.

use std::time::Duration;

use tidegate_core::{Error, Lease, TopicId, TopicPartition};
use tidegate_sql::{DbErr, EffectError, LeaseEnded, Txn, tables::markers};

use crate::{Inbox, source};

/// How long an inbox remembers.
///
/// This is a guarantee, and should be named as one: a message that a producer
/// writes twice, farther apart than this, has its effect twice. A *record* that
/// is delivered again never has: below the floor, it is `TooOld`.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_inbox::Retention;
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
///
/// // What is younger than a month, and of each partition a million offsets.
/// let retention = Retention::of_age(30 * DAY).or_offsets(1_000_000);
/// assert_ne!(retention, Retention::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    age: Option<Duration>,
    offsets: Option<u64>,
    step: u32,
}

/// What a pruner did to a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// How many markers it removed.
    pub removed: u64,
    /// Where the floor is now, if the partition is known.
    pub floor: Option<i64>,
}

// ===== impl Retention =====

impl Retention {
    /// Remembers a message for so long.
    #[must_use]
    pub fn of_age(age: Duration) -> Self {
        Self { age: Some(age), offsets: None, step: Self::STEP }
    }

    /// Remembers so many offsets of each partition, below the one that the
    /// broker has acknowledged.
    #[must_use]
    pub fn of_offsets(offsets: u64) -> Self {
        Self { age: None, offsets: Some(offsets), step: Self::STEP }
    }

    /// Remembers a message also while it is younger than that.
    #[must_use]
    pub fn or_age(self, age: Duration) -> Self {
        Self { age: Some(age), ..self }
    }

    /// Remembers a message also while it is one of so many offsets.
    #[must_use]
    pub fn or_offsets(self, offsets: u64) -> Self {
        Self { offsets: Some(offsets), ..self }
    }

    /// Removes at most so many markers in one transaction. 10 000 by default.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn with_step(self, step: u32) -> Self {
        assert!(step > 0, "a step removes at least one marker");
        Self { step, ..self }
    }

    // Some 50 ms of PostgreSQL's time, measured with eight partitions side by side.
    const STEP: u32 = 10_000;

    /// The highest floor that it allows.
    fn target(&self, acknowledged: i64) -> i64 {
        let kept = i64::try_from(self.offsets.unwrap_or(0)).unwrap_or(i64::MAX);
        acknowledged.saturating_sub(kept)
    }
}

impl Default for Retention {
    /// Two weeks: twice as long as a topic remembers by default.
    fn default() -> Self {
        Self::of_age(Duration::from_secs(14 * 24 * 60 * 60))
    }
}

// ===== impl Inbox =====

impl Inbox {
    /// Forgets what `retention` allows of a lease's partition, and raises the
    /// floor to where it stopped.
    ///
    /// The floor is never above the offset that the broker has acknowledged to
    /// the lease; without one, nothing is done. That offset is noted, also where
    /// there is nothing to forget: it tells a jump of the group from a gap in the
    /// log.
    ///
    /// # Errors
    ///
    /// `Fenced` when the lease ends; else when the database fails. What was done
    /// until then is done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was done until then is done.
    pub async fn prune(&self, lease: &Lease, retention: &Retention) -> Result<Pruned, Error> {
        let Some(acknowledged) = lease.acknowledged() else { return Ok(Pruned::default()) };
        self.prune_while(|| lease.is_held(), lease.partition(), acknowledged, retention).await
    }

    /// As [`prune`](Self::prune), without a lease: for a program that knows what
    /// the broker has acknowledged to the group.
    ///
    /// A floor above that would make records `TooOld` that were never applied.
    ///
    /// # Errors
    ///
    /// When the database fails. What was done until then is done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was done until then is done.
    pub async fn prune_below(
        &self,
        partition: &TopicPartition,
        acknowledged: i64,
        retention: &Retention,
    ) -> Result<Pruned, Error> {
        self.prune_while(|| true, partition, acknowledged, retention).await
    }

    /// Takes a topic that was made anew for the one that it replaces.
    ///
    /// Its offsets begin again, so what was pruned is forgotten. Messages that
    /// the old topic brought are still remembered: with ids by offset, those of
    /// the new one would be taken for them. Take a new namespace then.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn accept_topic(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
    ) -> Result<(), Error> {
        let accept = async || -> Result<(), DbErr> {
            let owner = self.database().begin().await?;
            let txn = owner.txn();
            if let Some(mut source) = markers::lock_source(&txn, partition).await? {
                source.topic_id = Some(topic_id);
                source.pruned = markers::Pruned::default();
                (source.gap, source.resumed, source.reached) = (0, 0, 0);
                markers::update_source(&txn, &source).await?;
            }
            owner.commit().await
        };
        Ok(accept().await.map_err(EffectError::from)?)
    }

    async fn prune_while(
        &self,
        is_held: impl Fn() -> bool,
        partition: &TopicPartition,
        acknowledged: i64,
        retention: &Retention,
    ) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let mut offsets = i64::from(retention.step);
        loop {
            let owner = self.database().begin().await.map_err(EffectError::from)?;
            let txn = owner.txn();
            let step = step(&txn, partition, acknowledged, retention, offsets).await;
            let step = step.map_err(EffectError::from)?;
            if !is_held() {
                return Err(LeaseEnded.into());
            }
            owner.commit().await.map_err(EffectError::from)?;
            self.metrics().pruned(step.removed);
            pruned.removed += step.removed;
            pruned.floor = step.floor;
            if step.is_last {
                return Ok(pruned);
            }
            offsets = step.offsets;
        }
    }
}

/// What one transaction did.
struct Step {
    removed: u64,
    floor: Option<i64>,
    is_last: bool,
    // How many offsets the next one looks at. In a log with gaps, they may be
    // more than the markers that one removes.
    offsets: i64,
}

async fn step(
    txn: &Txn,
    partition: &TopicPartition,
    acknowledged: i64,
    retention: &Retention,
    mut offsets: i64,
) -> Result<Step, DbErr> {
    let most = i64::from(retention.step);
    let Some(mut source) = markers::lock_source(txn, partition).await? else {
        return Ok(Step { removed: 0, floor: None, is_last: true, offsets });
    };
    let before = source.clone();
    source.reached = source.reached.max(acknowledged);
    let (from, last) = source::prunable(&source, retention.target(acknowledged));
    let mut to = last.min(from.saturating_add(offsets));
    let mut removed = 0;
    let mut is_young = false;
    if to > from {
        let mut span = markers::span(txn, source.number, (from, to), retention.age).await?;
        if span.count > most {
            // No offset has two markers.
            offsets = most;
            to = from + most;
            span = markers::span(txn, source.number, (from, to), retention.age).await?;
        }
        if span.count < most / 2 {
            offsets = offsets.saturating_mul(2);
        }
        is_young = span.young.is_some();
        to = span.young.unwrap_or(to);
    }
    if to > from {
        removed = markers::delete(txn, source.number, (from, to)).await?;
        source::raise(&mut source, from, to);
    }
    if source != before {
        markers::update_source(txn, &source).await?;
    }
    // The next range begins behind a jump, if there is one.
    let (next, end) = source::prunable(&source, retention.target(acknowledged));
    Ok(Step {
        removed,
        floor: Some(source.pruned.floor),
        is_last: is_young || next >= end,
        offsets,
    })
}
