//! One assigned partition, from the answer to its assignment until it is given
//! back.

use std::{sync::Arc, time::Duration};

use tidegate_core::{Epoch, Error, Frontier, Lease, LeaseOwner, TopicId, TopicPartition};
use tokio::{sync::mpsc::Sender, time::Instant};

use super::{pause::Pause, stall::Watch};
use crate::{
    ffi::Queue,
    task::{Item, Load, Running},
};

pub(crate) struct Partition<'c> {
    pub(crate) name: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) topic_id: Option<TopicId>,
    pub(crate) queue: Queue<'c>,
    /// Tells assignments of one partition apart.
    pub(crate) number: u64,
    /// The next offset to take from the client; negative while it is not known.
    pub(crate) position: i64,
    /// The end of its log, as it was last seen.
    pub(crate) end: Option<i64>,
    /// The newest frontier that the broker has acknowledged.
    pub(crate) acknowledged: Option<i64>,
    pub(crate) stage: Stage,
    /// Its positions are of another log: they are not to be committed.
    pub(crate) disowned: bool,
    pub(crate) pause: Pause,
    pub(crate) watch: Watch,
    pub(crate) progress: Progress,
    /// The mean size of its records, decaying, in bytes.
    pub(crate) record_size: usize,
}

/// Where a partition is between its assignment and its end.
pub(crate) enum Stage {
    /// Where it starts is not known yet: assigned, and never polled.
    Unresolved,
    /// It starts as soon as it may.
    Starting {
        /// Where; already the client's position, or to be sought.
        at: i64,
        /// What has to come first.
        gate: Option<Gate>,
    },
    /// A stack works on it.
    Working(Stack),
    /// Its stack failed, and ends what runs.
    Stopping { stack: Stack, cause: Error, deadline: Instant },
    /// It waits before it is tried again.
    Stopped { cause: Error, frontier: Option<i64>, until: Instant },
    /// No membership proof came: it waits for one.
    Suspended { frontier: i64, owner: LeaseOwner },
    /// Nothing works on it any more, and it is about to be given back.
    Drained { frontier: Option<i64>, owner: Option<LeaseOwner> },
}

/// What has to come before the first delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The acknowledgement of the position, which was chosen.
    Acknowledged,
    /// The proof of a commit that was sent after this time.
    Proof(Instant),
}

/// A lease, and the task that works under it.
pub(crate) struct Stack {
    pub(crate) owner: LeaseOwner,
    /// The `Arc` that deliveries share: alone when none is left.
    pub(crate) lease: Arc<Lease>,
    pub(crate) frontier: Frontier,
    pub(crate) load: Arc<Load>,
    pub(crate) chunks: Sender<Vec<Item>>,
    /// Whether there is room for more to read.
    pub(crate) open: bool,
    /// Whether the task has said that nothing runs any more.
    pub(crate) ended: bool,
    /// Aborts the task when it is dropped.
    pub(crate) task: Running,
}

/// When the frontier last moved, and where it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) frontier: i64,
    pub(crate) at: Instant,
}

impl Partition<'_> {
    /// What is safe to commit, if anything is.
    pub(crate) fn frontier(&self) -> Option<i64> {
        if self.disowned {
            return None;
        }
        match &self.stage {
            Stage::Unresolved => None,
            Stage::Starting { at, .. } => Some(*at),
            Stage::Working(stack) | Stage::Stopping { stack, .. } => Some(stack.frontier.offset()),
            Stage::Suspended { frontier, .. } => Some(*frontier),
            Stage::Stopped { frontier, .. } | Stage::Drained { frontier, .. } => *frontier,
        }
    }

    /// Whether the broker has acknowledged the frontier.
    pub(crate) fn is_confirmed(&self) -> bool {
        let frontier = self.frontier();
        frontier.is_none_or(|frontier| self.acknowledged.is_some_and(|it| it >= frontier))
    }

    /// How much is finished and not confirmed.
    pub(crate) fn unconfirmed(&self) -> i64 {
        let frontier = self.frontier().unwrap_or(0);
        frontier - self.acknowledged.unwrap_or(frontier)
    }

    pub(crate) fn stack(&self) -> Option<&Stack> {
        match &self.stage {
            Stage::Working(stack) | Stage::Stopping { stack, .. } => Some(stack),
            _ => None,
        }
    }

    /// Starts it again, from where it stood.
    pub(crate) fn begin_again(&mut self, at: i64) {
        self.stage = Stage::Starting { at, gate: None };
        // The client is elsewhere: it is sought.
        self.position = -1;
    }

    /// Nothing works on it: it may be given back as it is.
    pub(crate) fn settle(&mut self) {
        let frontier = self.frontier();
        let owner = match std::mem::replace(&mut self.stage, Stage::Unresolved) {
            Stage::Suspended { owner, .. } => Some(owner),
            Stage::Drained { owner, .. } => owner,
            _ => None,
        };
        self.stage = Stage::Drained { frontier, owner };
    }

    /// Ends its stack, if it has one: no completion counts after this. `next`
    /// makes the next stage of the last frontier and the owner of the lease.
    /// Returns the lease, for as long as deliveries of it may live.
    pub(crate) fn end_stack(
        &mut self,
        next: impl FnOnce(i64, LeaseOwner) -> Stage,
    ) -> Option<Arc<Lease>> {
        match std::mem::replace(&mut self.stage, Stage::Unresolved) {
            Stage::Working(stack) | Stage::Stopping { stack, .. } => {
                let Stack { owner, lease, frontier, task, .. } = stack;
                // First the frontier is closed, then what runs is dropped: the
                // tickets that this abandons are late.
                let offset = frontier.close();
                drop(task);
                self.stage = next(offset, owner);
                Some(lease)
            }
            other => {
                self.stage = other;
                None
            }
        }
    }
}

impl Progress {
    pub(crate) fn at(frontier: i64, now: Instant) -> Self {
        Self { frontier, at: now }
    }

    /// Notes where the frontier is now.
    pub(crate) fn note(&mut self, frontier: i64, now: Instant) {
        if frontier != self.frontier {
            *self = Self::at(frontier, now);
        }
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}
