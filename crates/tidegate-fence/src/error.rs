use tidegate_core::{Class, Error, LeaseState, TopicPartition};

/// The lease was not active when the delivery came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease on {partition} is {state}")]
#[non_exhaustive]
pub struct Refused {
    /// The partition.
    pub partition: TopicPartition,
    /// The state that the lease was in.
    pub state: LeaseState,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::new(Class::Fenced, refused)
    }
}
