use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_core::{Epoch, Error, TopicPartition};

/// How a source stands: a handle that may be kept and cloned.
///
/// It is written by the poll loop a few times a second. A state that is not
/// known is said to be unknown, by `None`.
#[derive(Clone, Debug)]
pub struct Status {
    shared: Arc<Mutex<Published>>,
}

/// How one partition stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The partition.
    pub partition: TopicPartition,
    /// What it does, or why it does not move.
    pub state: PartitionState,
    /// Why it is stopped.
    pub cause: Option<Error>,
    /// Whose assignment it is.
    pub epoch: Epoch,
    /// What is safe to commit.
    pub frontier: Option<i64>,
    /// What the broker has acknowledged.
    pub committed: Option<i64>,
    /// The next offset to be read.
    pub next: Option<i64>,
    /// The end of the log, as far as transactions are decided.
    pub end: Option<i64>,
    /// How far the frontier is behind the end.
    pub lag: Option<i64>,
    /// Admitted records, not answered yet.
    pub in_flight: usize,
    /// The bytes of what is read and not answered.
    pub bytes: usize,
    /// Incomplete records with complete ones above them.
    pub holes: usize,
    /// How long ago the frontier moved.
    pub idle: Duration,
}

/// What a partition does, or why it does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartitionState {
    /// It is looked up where it starts, or it waits for what has to come first.
    Starting,
    /// Work goes on, or waits for records.
    Running,
    /// A batch failed for now, and is tried again.
    Retrying,
    /// The database cannot be reached.
    DatabaseDown,
    /// Too many early deltas are parked.
    WaitingForGap,
    /// What runs may finish.
    Draining,
    /// No membership proof has come for a session.
    Suspended,
    /// It failed, and is tried again after a pause.
    Stopped,
}

/// How the member stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Who it is, as of its last assignment.
    pub epoch: Option<Epoch>,
    /// How long ago the commit was sent that last proved the membership.
    pub proof_age: Option<Duration>,
}

#[derive(Debug, Default)]
struct Published {
    member: MemberStatus,
    partitions: BTreeMap<TopicPartition, PartitionStatus>,
}

/// The poll loop's side of a [`Status`].
#[derive(Clone, Debug)]
pub(crate) struct Publisher(Status);

// ===== impl Status =====

impl Status {
    pub(crate) fn new() -> (Publisher, Self) {
        let status = Self { shared: Arc::default() };
        (Publisher(status.clone()), status)
    }

    /// The partitions that this member has, in order.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        self.published().partitions.values().cloned().collect()
    }

    /// One partition, if this member has it.
    #[must_use]
    pub fn partition(&self, partition: &TopicPartition) -> Option<PartitionStatus> {
        self.published().partitions.get(partition).cloned()
    }

    /// The member.
    #[must_use]
    pub fn member(&self) -> MemberStatus {
        self.published().member.clone()
    }

    // Nothing that runs under the lock can panic half way.
    fn published(&self) -> MutexGuard<'_, Published> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ===== impl PartitionState =====

impl PartitionState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Starting,
        Self::Running,
        Self::Retrying,
        Self::DatabaseDown,
        Self::WaitingForGap,
        Self::Draining,
        Self::Suspended,
        Self::Stopped,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::DatabaseDown => "database down",
            Self::WaitingForGap => "waiting for a gap",
            Self::Draining => "draining",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// ===== impl Publisher =====

impl Publisher {
    pub(crate) fn publish(&self, member: MemberStatus, partitions: Vec<PartitionStatus>) {
        let partitions = partitions.into_iter().map(|it| (it.partition.clone(), it)).collect();
        *self.0.published() = Published { member, partitions };
    }

    pub(crate) fn clear(&self) {
        *self.0.published() = Published::default();
    }
}
