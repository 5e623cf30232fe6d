use std::{collections::BTreeMap, time::Duration};

use rdkafka::error::KafkaError;

use super::ErrorCode;

/// The embedded broker, or a client that asks it, has failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerFailure {
    /// It could not be started.
    #[error("the embedded broker could not be started: {reason}")]
    Start {
        /// Why, in librdkafka's words.
        reason: String,
    },
    /// A name is none that C can read.
    #[error("`{}` has a zero in it", name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
    /// There is no such topic.
    #[error("the embedded broker has no topic `{topic}`")]
    UnknownTopic {
        /// The topic.
        topic: String,
    },
    /// The broker refused to do something.
    #[error("the broker refused to {what}: {code}")]
    Refused {
        /// What it should have done.
        what: &'static str,
        /// Why.
        code: ErrorCode,
    },
    /// A client of the test kit could not do something.
    #[error("a client of the broker could not {what}")]
    Client {
        /// What it should have done.
        what: &'static str,
        /// Why.
        source: KafkaError,
    },
    /// A partition has lost its first records, because it holds no more.
    #[error("partition {partition} of `{topic}` has lost its records below {start}")]
    Overflow {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that is still there.
        start: i64,
    },
}

/// A group has not read a topic to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotConsumed {
    /// Not in time.
    #[error("after {} s the group has committed {committed:?} of {ends:?}", deadline.as_secs())]
    Deadline {
        /// The time that was given.
        deadline: Duration,
        /// What is committed, by partition.
        committed: BTreeMap<i32, Option<i64>>,
        /// Where the partitions end.
        ends: BTreeMap<i32, i64>,
    },
    /// Whether it has is not known.
    #[error("the embedded broker could not be asked")]
    Broker(#[from] BrokerFailure),
}
