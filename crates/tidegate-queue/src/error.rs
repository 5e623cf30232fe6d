use std::any::Any;

use tidegate_core::{Class, Error, LeaseState, TopicPartition};

/// Why a queue answered a delivery by itself.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// An earlier delivery of its lane failed, and this one waits until that is
    /// resolved: it was not tried.
    #[error("an earlier delivery of the lane failed")]
    Halted(#[source] Error),

    /// The lease stopped being active before a lane took the delivery: it was
    /// not tried, and is left to the next owner.
    #[error("the lease on {partition} is {state}, and the delivery was not begun")]
    Unstarted {
        /// The partition.
        partition: TopicPartition,
        /// The state that the lease was in.
        state: LeaseState,
    },

    /// The queue was dropped before the delivery was done.
    #[error("the queue was dropped before the delivery was done")]
    Dropped,

    /// A service under the queue panicked while it ran the delivery's batch.
    #[error("the stack under the queue panicked: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },

    /// A service under the queue answered a batch with more or fewer outcomes
    /// than it has deliveries, so nobody knows which is whose.
    #[error("a batch of {deliveries} was answered with {outcomes} outcomes")]
    Miscounted {
        /// The deliveries in the batch.
        deliveries: usize,
        /// The outcomes.
        outcomes: usize,
    },

    /// The delivery came under another lease than the first one: a stack serves
    /// one lease.
    #[error("a queue for one lease on {serves} was given a delivery under another")]
    OtherLease {
        /// The partition of the queue's own lease.
        serves: TopicPartition,
    },
}

impl QueueError {
    /// Of the payload that `catch_unwind` caught.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let literal = payload.downcast_ref::<&str>().copied();
        let message = literal.or_else(|| payload.downcast_ref().map(String::as_str));
        Self::Panicked { message: message.unwrap_or("it did not say why").to_owned() }
    }
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Self {
        let class = match error {
            // Who drops a stack gives its partition up.
            QueueError::Halted(_) | QueueError::Unstarted { .. } | QueueError::Dropped => {
                Class::Fenced
            }
            QueueError::Panicked { .. }
            | QueueError::Miscounted { .. }
            | QueueError::OtherLease { .. } => Class::Fatal,
        };
        Self::new(class, error)
    }
}
