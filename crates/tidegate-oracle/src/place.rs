use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Partition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
}

/// Where a record lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The partition.
    #[serde(flatten)]
    pub partition: Partition,
    /// The offset within it.
    pub offset: i64,
}

// ===== impl Partition =====

impl Partition {
    /// Names a partition.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// A place in this partition.
    #[must_use]
    pub fn at(&self, offset: i64) -> Place {
        Place { partition: self.clone(), offset }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

// ===== impl Place =====

impl Place {
    /// Names a place.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32, offset: i64) -> Self {
        Partition::new(topic, partition).at(offset)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.partition, self.offset)
    }
}
