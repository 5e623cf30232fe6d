use std::any::Any;

use tidegate_core::{Class, Error, LeaseState, TopicPartition};

/// An earlier delivery of the lane failed, so this one waits until that is
/// resolved: it was not tried.
#[derive(Clone, Debug, thiserror::Error)]
#[error("an earlier delivery of the lane failed")]
#[non_exhaustive]
pub struct Halted {
    /// What happened to the earlier one.
    #[source]
    pub cause: Error,
}

/// The lease stopped being active before a lane took the delivery: it was not
/// tried, and is left to the next owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease on {partition} is {state}, and the delivery was not begun")]
#[non_exhaustive]
pub struct Unstarted {
    /// The partition.
    pub partition: TopicPartition,
    /// The state that the lease was in.
    pub state: LeaseState,
}

/// A service under the queue panicked while it ran the delivery's batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stack under the queue panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// What it said.
    pub message: String,
}

/// A service under the queue answered a batch with more or fewer outcomes than
/// it has deliveries, so nobody knows which is whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch of {deliveries} was answered with {outcomes} outcomes")]
#[non_exhaustive]
pub struct Miscounted {
    /// The deliveries in the batch.
    pub deliveries: usize,
    /// The outcomes.
    pub outcomes: usize,
}

/// A delivery came under another lease than the first one: a stack serves one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a queue that serves a lease on {serves} was given a delivery under another lease")]
#[non_exhaustive]
pub struct OtherLease {
    /// The partition of the queue's own lease.
    pub serves: TopicPartition,
}

/// The queue was dropped before the delivery was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lane ended before the delivery was done")]
#[non_exhaustive]
pub struct LaneEnded {}

// ===== impl Panicked =====

impl Panicked {
    /// Of the payload that `catch_unwind` caught.
    pub(crate) fn with(payload: &(dyn Any + Send)) -> Self {
        let literal = payload.downcast_ref::<&str>().copied();
        let message = literal.or_else(|| payload.downcast_ref().map(String::as_str));
        Self { message: message.unwrap_or("no message").to_owned() }
    }
}

// ===== classes =====

impl From<Halted> for Error {
    fn from(halted: Halted) -> Self {
        Self::new(Class::Fenced, halted)
    }
}

impl From<Unstarted> for Error {
    fn from(unstarted: Unstarted) -> Self {
        Self::new(Class::Fenced, unstarted)
    }
}

impl From<Panicked> for Error {
    fn from(panicked: Panicked) -> Self {
        Self::new(Class::Fatal, panicked)
    }
}

impl From<Miscounted> for Error {
    fn from(miscounted: Miscounted) -> Self {
        Self::new(Class::Fatal, miscounted)
    }
}

impl From<OtherLease> for Error {
    fn from(other: OtherLease) -> Self {
        Self::new(Class::Fatal, other)
    }
}

impl From<LaneEnded> for Error {
    // Who drops a stack gives its partition up.
    fn from(ended: LaneEnded) -> Self {
        Self::new(Class::Fenced, ended)
    }
}
