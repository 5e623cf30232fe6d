use std::fmt;

/// Names a kind of Kafka request, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiKey(pub i16);

// ===== impl ApiKey =====

impl ApiKey {
    /// Writes records.
    pub const PRODUCE: Self = Self(0);
    /// Reads records.
    pub const FETCH: Self = Self(1);
    /// Asks where a log begins and ends.
    pub const LIST_OFFSETS: Self = Self(2);
    /// Asks for topics, partitions and brokers.
    pub const METADATA: Self = Self(3);
    /// Commits offsets.
    pub const OFFSET_COMMIT: Self = Self(8);
    /// Asks for committed offsets.
    pub const OFFSET_FETCH: Self = Self(9);
    /// Asks who coordinates a group.
    pub const FIND_COORDINATOR: Self = Self(10);
    /// Joins a classic group.
    pub const JOIN_GROUP: Self = Self(11);
    /// Says that a member of a classic group lives.
    pub const HEARTBEAT: Self = Self(12);
    /// Leaves a classic group.
    pub const LEAVE_GROUP: Self = Self(13);
    /// Asks for the assignment in a classic group.
    pub const SYNC_GROUP: Self = Self(14);
    /// All that a member says under the consumer protocol.
    pub const CONSUMER_GROUP_HEARTBEAT: Self = Self(68);
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request kind {}", self.0)
    }
}
