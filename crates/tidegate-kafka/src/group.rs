//! What a person does to a group: look at it, and set its offsets.

mod admin;
mod plan;

use std::collections::BTreeSet;

use tidegate_core::TopicPartition;

pub use self::{
    admin::{Committed, GroupAdmin, GroupError},
    plan::{Move, Plan, ResetTo},
};

/// How a group stands, by its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its state.
    pub state: GroupState,
    /// The protocol of its members.
    pub protocol: GroupType,
    /// How partitions are assigned; empty while it is not decided.
    pub assignor: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// Its id.
    pub id: String,
    /// The `client.id` of its process.
    pub client_id: String,
    /// Its static identity, if it has one.
    pub instance_id: Option<String>,
    /// Where it connects from.
    pub host: String,
    /// What it has.
    pub assignment: BTreeSet<TopicPartition>,
    /// What it is to have, under the consumer protocol.
    pub target: Option<BTreeSet<TopicPartition>>,
}

/// What a group does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupState {
    /// Its members have their partitions.
    Stable,
    /// Partitions move between its members.
    Rebalancing,
    /// It has no members, and may have offsets.
    Empty,
    /// There is no such group.
    Dead,
    /// The client does not know the name of the state: under the consumer
    /// protocol, while partitions move.
    Unknown,
}

/// The protocol of a group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupType {
    /// Members choose how partitions are assigned.
    Classic,
    /// The broker does.
    Consumer,
    /// The client does not know.
    Unknown,
}

impl GroupDescription {
    /// How many members have no partition.
    #[must_use]
    pub fn idle_members(&self) -> usize {
        self.members.iter().filter(|member| member.assignment.is_empty()).count()
    }
}
