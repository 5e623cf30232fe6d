use tidegate_core::{Class, Error, LeaseState, TopicPartition};

/// The lease was over before the record could be buried: its next owner
/// decides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease on {partition} is {state}, so the record is not buried")]
#[non_exhaustive]
pub struct NotHeld {
    /// The partition.
    pub partition: TopicPartition,
    /// The state that the lease was in.
    pub state: LeaseState,
}

impl From<NotHeld> for Error {
    fn from(not_held: NotHeld) -> Self {
        Self::new(Class::Fenced, not_held)
    }
}
