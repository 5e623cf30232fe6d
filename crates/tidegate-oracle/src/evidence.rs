use serde::{Deserialize, Serialize};

use crate::{Log, MessageId, Partition, Place};

/// What there was, and what there is: all that a verdict rests on.
///
/// A table that was not read is `None`, which differs from one that is empty:
/// [`judge`](crate::judge) gives no verdict where the rules need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The topic.
    pub log: Log,
    /// The group's committed offsets over time, in the order in which they
    /// were seen.
    pub committed: Option<Vec<Committed>>,
    /// The effects.
    pub effects: Option<Vec<Effect>>,
    /// The inbox's markers.
    pub markers: Option<Vec<Marker>>,
    /// What the inbox has pruned.
    pub floors: Vec<Floor>,
    /// Where the sequencer has entities.
    pub positions: Option<Vec<Position>>,
    /// The deltas that wait for a predecessor.
    pub parked: Option<Vec<Parked>>,
    /// The records that are dead letters.
    pub buried: Option<Vec<Place>>,
    /// The entities' sums, where the application keeps them.
    pub balances: Option<Vec<Balance>>,
}

/// A committed offset, as it was seen at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The partition.
    #[serde(flatten)]
    pub partition: Partition,
    /// The offset; `None` where the group has none.
    pub offset: Option<i64>,
    /// When it was seen, in milliseconds since the Unix epoch.
    pub at: i64,
    /// Goes up when the offsets are set back on purpose: across that, going
    /// back is no violation.
    pub era: u32,
}

/// One effect, as the application's table has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The message that it is of.
    pub id: MessageId,
    /// What was changed.
    pub entity: String,
    /// The revision that the entity had after it.
    pub revision: i64,
    /// By how much it was changed.
    pub amount: i64,
    /// The record that it was made of.
    #[serde(flatten)]
    pub place: Place,
    /// Who made it: a process, or a member of a group.
    pub worker: String,
    /// The generation or member epoch under which it was made. Where a group's
    /// generations begin again, the worker adds what keeps it growing.
    pub epoch: i64,
    /// Its place in the order in which effects were made, which is not the
    /// order in which their transactions were committed.
    pub seq: i64,
}

/// A marker of an inbox: this message was here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The message.
    pub id: MessageId,
    /// The record that made it.
    #[serde(flatten)]
    pub place: Place,
}

/// The range of a partition whose markers an inbox may have pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The partition.
    #[serde(flatten)]
    pub partition: Partition,
    /// The first offset of the range.
    pub low: i64,
    /// The first offset above it.
    pub floor: i64,
}

/// The last revision that a sequencer has let through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The entity.
    pub entity: String,
    /// Its revision.
    pub revision: i64,
}

/// A delta that a sequencer has parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The entity.
    pub entity: String,
    /// The delta's revision.
    pub revision: i64,
    /// The record.
    #[serde(flatten)]
    pub place: Place,
    /// Whether it failed alone, and is kept back until a person acts.
    pub withheld: bool,
}

/// An entity's sum, as the application keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// The entity.
    pub entity: String,
    /// The sum of its amounts.
    pub amount: i64,
}
