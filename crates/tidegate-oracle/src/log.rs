use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Partition, Place};

/// Names a message, as its marker does: 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MessageId(pub u128);

/// One record, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// Where it lies.
    pub place: Place,
    /// The key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Vec<u8>>,
}

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A change of an entity.
    Message(Message),
    /// Nothing: it cannot be decoded.
    Undecodable,
}

/// A change of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which message it is, however often it was written.
    pub id: MessageId,
    /// What it changes.
    pub entity: String,
    /// Its place in the entity's history.
    pub revision: i64,
    /// By how much.
    pub amount: i64,
    /// Whether a database takes it. One that breaks a constraint is poison
    /// although it can be decoded.
    pub appliable: bool,
}

/// One record, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The record.
    pub record: RawRecord,
    /// What it asks for.
    pub meaning: Meaning,
}

/// A topic from its start to its end: what should have happened.
///
/// The order of an entity's records must be defined, so they lie in one
/// partition; and all records of one message are of one entity. Records that
/// have left the topic, by its retention or an operator, have to be read before
/// they do: without them nothing is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    inputs: Vec<Input>,
    bounds: BTreeMap<Partition, Bounds>,
}

/// What a partition held when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The first offset that is still there.
    pub start: i64,
    /// The offset of the next record that will be written.
    pub end: i64,
}

// ===== impl Log =====

impl Log {
    /// Puts records in order and asks what each means.
    ///
    /// A partition is taken to begin at offset 0 and to end after its last
    /// record, unless [`with_bounds`](Self::with_bounds) says something else.
    pub fn new(
        records: impl IntoIterator<Item = RawRecord>,
        meaning: impl Fn(&RawRecord) -> Meaning,
    ) -> Self {
        let input = |record| Input { meaning: meaning(&record), record };
        let mut inputs: Vec<_> = records.into_iter().map(input).collect();
        inputs.sort_by(|left, right| left.record.place.cmp(&right.record.place));
        let mut bounds = BTreeMap::<_, Bounds>::new();
        for Place { partition, offset } in inputs.iter().map(|input| &input.record.place) {
            bounds
                .entry(partition.clone())
                .and_modify(|bounds| bounds.end = offset + 1)
                .or_insert(Bounds { start: 0, end: offset + 1 });
        }
        Self { inputs, bounds }
    }

    /// Says where partitions begin and end, as their broker does.
    #[must_use]
    pub fn with_bounds(self, bounds: impl IntoIterator<Item = (Partition, Bounds)>) -> Self {
        Self { bounds: bounds.into_iter().collect(), ..self }
    }

    /// The records, by partition and offset.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Where each partition begins and ends.
    #[must_use]
    pub fn bounds(&self) -> &BTreeMap<Partition, Bounds> {
        &self.bounds
    }
}

impl Log {
    /// Partitions that begin after offset 0, with nothing known from before.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (&Partition, i64)> {
        let starts = self.bounds.iter().map(|(partition, bounds)| (partition, bounds.start));
        starts.filter(|(partition, start)| {
            let before = self.inputs.partition_point(|input| {
                let place = &input.record.place;
                (&place.partition, place.offset) < (*partition, *start)
            });
            let last = before.checked_sub(1).map(|last| &self.inputs[last].record.place.partition);
            *start > 0 && last != Some(*partition)
        })
    }
}

// ===== impl Input =====

impl Input {
    /// The change that it asks for, if it can be decoded.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        match &self.meaning {
            Meaning::Message(message) => Some(message),
            Meaning::Undecodable => None,
        }
    }

    /// Whether it carries the bytes that another one carries.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.record.payload == other.record.payload
    }
}

// ===== impl MessageId =====

/// A text is not the id of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an id of 32 hexadecimal digits")]
pub struct NotAnId(String);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for MessageId {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        u128::from_str_radix(&text, 16).map(Self).map_err(|_| NotAnId(text))
    }
}
