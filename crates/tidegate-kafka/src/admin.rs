//! Questions to the brokers and orders to the group's coordinator, without
//! waiting: answers come into a queue.

pub(crate) mod ffi;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_core::{TopicId, TopicPartition};

use crate::group::GroupDescription;

/// What is asked, or ordered.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// What a group has committed, for these partitions or for all.
    Committed { group: String, partitions: Option<Vec<TopicPartition>> },
    /// Offsets of logs.
    Offsets(Vec<(TopicPartition, Spec)>),
    /// The ids and the partitions of topics.
    Topics(BTreeSet<Arc<str>>),
    /// How a group stands.
    Describe { group: String },
    /// The configuration of a group, from this broker.
    Config { group: String, broker: i32 },
    /// Commits offsets for a group without members.
    Alter { group: String, offsets: Vec<(TopicPartition, Position)> },
    /// Forgets what a group without members has committed.
    Forget { group: String, partitions: Vec<TopicPartition> },
}

/// Which offset of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// Where it begins.
    Low,
    /// Where it ends, uncommitted transactions included.
    High,
    /// The first one at this time or later, in milliseconds since the Unix epoch.
    At(i64),
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The number that the request was given.
    pub(crate) number: u64,
    pub(crate) result: Result<Facts, Failure>,
}

/// What an answer says.
#[derive(Debug)]
pub(crate) enum Facts {
    /// `None` where the group has committed nothing.
    Committed(BTreeMap<TopicPartition, Result<Option<Position>, Failure>>),
    /// -1 where a log has no record at a time or later.
    Offsets(BTreeMap<TopicPartition, Result<i64, Failure>>),
    Topics(BTreeMap<Arc<str>, Result<Topic, Failure>>),
    Group(GroupDescription),
    /// The values of a configuration, by name.
    Config(BTreeMap<String, String>),
    /// The client has learned who leads the partitions of some topics.
    Leaders,
    /// Whether each partition's offset was altered, or forgotten.
    Altered(BTreeMap<TopicPartition, Result<(), Failure>>),
}

/// A topic, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<i32>,
}

/// A committed offset, and what was written beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

/// Why a request, or a part of it, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}{reason}", if reason.is_empty() { "" } else { ": " })]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) reason: String,
}
