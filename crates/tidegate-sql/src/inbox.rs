//! What an inbox does with its tables.
//!
//! `tidegate-inbox` is built on these functions; an application has no need of
//! them. What is decided in between is in [`tidegate_core::inbox`].

use std::time::Duration;

use tidegate_core::{
    Lease, TopicId, TopicPartition,
    inbox::{History, Messages},
};

pub use crate::tables::markers::Claim;
use crate::{
    Database, DbErr, Txn,
    tables::markers::{self, Source},
};

/// How far a pruner may go, and in which steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The offset that the broker has acknowledged.
    pub acknowledged: i64,
    /// The highest floor.
    pub target: i64,
    /// What is younger than that stays.
    pub age: Option<Duration>,
    /// How many markers one transaction removes at most.
    pub step: u32,
}

/// What one transaction of a pruner did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many markers it removed.
    pub removed: u64,
    /// Where the floor is then, if the partition is known.
    pub floor: Option<i64>,
    /// Whether there is nothing more to remove.
    pub is_last: bool,
    /// How many offsets the next one looks at. In a log with gaps, they may be
    /// more than the markers that one removes.
    pub offsets: i64,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The messages are claimed, but for those that it met.
    Met(Claim),
    /// The partition is one that [`enter`] has not made known.
    Unknown,
    /// They were expected to be new, and some message was claimed before, or the
    /// batch holds it twice. The transaction has failed, and the next one expects
    /// nothing.
    Repeated,
}

/// Makes the partition of a lease known, or notes that the lease jumped.
///
/// To be committed before a batch is claimed: it locks the partition, and with
/// it all lanes. One statement, where there is nothing to note.
///
/// # Errors
///
/// When the database fails.
pub async fn enter(txn: &Txn, lease: &Lease, messages: &Messages) -> Result<(), DbErr> {
    let (partition, topic_id) = (lease.partition(), lease.topic_id());
    let start = lease.acknowledged().unwrap_or_else(|| messages.first_offset());
    let Some(source) = markers::source(txn, partition).await? else {
        return markers::enter(txn, partition, topic_id, start).await;
    };
    if resumed(txn, &source, topic_id, start).await?.is_none() {
        return Ok(());
    }
    // Looked at again under a lock, since another lane may be here as well.
    let Some(source) = markers::lock_source(txn, partition).await? else { return Ok(()) };
    match resumed(txn, &source, topic_id, start).await? {
        Some(history) => markers::update_source(txn, &Source { history, ..source }).await,
        None => Ok(()),
    }
}

/// Claims the messages of a batch. If they are `expected` to be new, that costs
/// less where they are, and may take another transaction where one is not, or is
/// there twice.
///
/// # Errors
///
/// When the database fails.
pub async fn claim(
    txn: &Txn,
    lease: &Lease,
    messages: &Messages,
    expected: bool,
) -> Result<Claimed, DbErr> {
    let (partition, markers) = (lease.partition(), messages.markers());
    let claim = match expected {
        true => markers::claim_new(txn, partition, &markers).await,
        false => markers::claim(txn, partition, &markers).await,
    };
    match claim {
        Ok(claim) => Ok(claim.map_or(Claimed::Unknown, Claimed::Met)),
        Err(error) if expected && markers::is_repeat(&error) => Ok(Claimed::Repeated),
        Err(error) => Err(error),
    }
}

async fn resumed(
    txn: &Txn,
    Source { number, history }: &Source,
    topic_id: Option<&TopicId>,
    start: i64,
) -> Result<Option<History>, DbErr> {
    let last = match start > history.reached {
        true => markers::last_marked(txn, *number, history.reached).await?,
        false => None,
    };
    Ok(history.resume(topic_id, start, last))
}

/// Takes a topic that was made anew for the one that it replaces: what was read
/// of a partition is forgotten, but for its markers.
///
/// # Errors
///
/// When the database fails.
pub async fn accept_topic(
    database: &Database,
    partition: &TopicPartition,
    topic_id: TopicId,
) -> Result<(), DbErr> {
    let owner = database.begin().await?;
    let txn = owner.txn();
    if let Some(source) = markers::lock_source(&txn, partition).await? {
        let history = History::starting_at(0, Some(topic_id));
        markers::update_source(&txn, &Source { history, ..source }).await?;
    }
    owner.commit().await
}

/// Removes the markers of some offsets of a partition, and raises the floor to
/// where it stopped.
///
/// It looks at so many `offsets`, or fewer.
///
/// # Errors
///
/// When the database fails.
pub async fn prune(
    txn: &Txn,
    partition: &TopicPartition,
    limits: &Limits,
    mut offsets: i64,
) -> Result<Step, DbErr> {
    let most = i64::from(limits.step);
    let Some(mut source) = markers::lock_source(txn, partition).await? else {
        return Ok(Step { removed: 0, floor: None, is_last: true, offsets });
    };
    let before = source.clone();
    let Source { number, history } = &mut source;
    history.reached = history.reached.max(limits.acknowledged);
    let (from, last) = history.prunable(limits.target);
    let mut to = last.min(from.saturating_add(offsets));
    let mut removed = 0;
    let mut is_young = false;
    if to > from {
        let mut span = markers::span(txn, *number, (from, to), limits.age).await?;
        if span.count > most {
            // No offset has two markers.
            offsets = most;
            to = from + most;
            span = markers::span(txn, *number, (from, to), limits.age).await?;
        }
        if span.count < most / 2 {
            offsets = offsets.saturating_mul(2);
        }
        is_young = span.young.is_some();
        to = span.young.unwrap_or(to);
    }
    if to > from {
        removed = markers::delete(txn, *number, (from, to)).await?;
        history.raise(from, to);
    }
    // The next range begins behind a jump, if there is one.
    let (next, end) = history.prunable(limits.target);
    let (floor, is_last) = (Some(history.pruned.floor), is_young || next >= end);
    if source != before {
        markers::update_source(txn, &source).await?;
    }
    Ok(Step { removed, floor, is_last, offsets })
}
