use tidegate_core::{Frontier, Lease, TopicPartition};

/// A partition given to this member, for one stack.
///
/// The make-service takes it by value, and builds a stack for it alone. It is
/// called with a new one when the partition comes back, and when it is tried
/// again after a failure.
#[derive(Clone, Debug)]
pub struct Assignment {
    lease: Lease,
    frontier: Frontier,
}

impl Assignment {
    pub(crate) fn new(lease: Lease, frontier: Frontier) -> Self {
        Self { lease, frontier }
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        self.lease.partition()
    }

    /// The right to work on it.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Where it stands.
    #[must_use]
    pub fn frontier(&self) -> Frontier {
        self.frontier.clone()
    }

    /// The offset of the first record that will be delivered, or of a later one
    /// where the log has a gap.
    #[must_use]
    pub fn position(&self) -> i64 {
        self.frontier.offset()
    }
}
