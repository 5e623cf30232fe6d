use std::fmt;

use super::Record;

/// Names a message, however often it is delivered: 128 bits.
///
/// Best is an id that grows with time (a version 7 UUID of the producer, or
/// [`of_offset`](Self::of_offset)): an index over such ids stays small and
/// fast, where one over random ids does not.
///
/// ```
/// use tidegate_core::MessageId;
///
/// let of_a_uuid = MessageId::from(0x0190_1b5e_7c1a_7000_8000_0000_0000_0001_u128);
/// let of_a_text = MessageId::of(b"order-17/created");
/// assert_ne!(of_a_uuid, of_a_text);
/// assert_eq!(of_a_uuid.to_string(), "01901b5e7c1a70008000000000000001");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId([u8; 16]);

/// A digest of a payload: the first 128 bits of its BLAKE3 hash.
///
/// Of the bytes as they were read, not of what they were decoded to. A
/// tombstone has the digest of no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

/// Says which message a value is.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which message it is",
    label = "needed by an inbox",
    note = "implement `Identified` for `{Self}`, or take the id from the record: `InboxLayer::by_offset`, `by_key`, `by_header`",
    note = "if `{Self}` is `()`, nothing has decoded the record: write `DecodeLayer` before `QueueLayer`"
)]
pub trait Identified {
    /// The message's id: the same for every delivery of the message, and for
    /// no other message of the namespace.
    fn message_id(&self) -> MessageId;
}

/// Says what a value changes, and its place in that entity's history.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which entity and revision it is",
    label = "needed by a sequencer, and by a queue whose lanes are by entity",
    note = "implement `Sequenced` for `{Self}`, or let lanes go by the record's key: `QueueLayer::by_key`",
    note = "if `{Self}` is `()`, nothing has decoded the record: write `DecodeLayer` before `QueueLayer`"
)]
pub trait Sequenced {
    /// The entity that the value changes.
    fn entity(&self) -> &[u8];

    /// The place in the entity's history; the first is 1.
    fn revision(&self) -> i64;
}

// ===== impl MessageId =====

impl MessageId {
    /// The id that is the hash of `bytes`: the first 128 bits of BLAKE3.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(digest(bytes))
    }

    /// The id of a record by its place: 64 bits of the hash of topic and
    /// partition, and the offset.
    ///
    /// It sees a record that is delivered again, and no message that a
    /// producer wrote twice.
    #[must_use]
    pub fn of_offset(record: &Record) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(record.partition.topic.as_bytes());
        hasher.update(&record.partition.partition.to_be_bytes());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        id[8..].copy_from_slice(&record.offset.to_be_bytes());
        Self(id)
    }

    /// The id, to be stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl From<[u8; 16]> for MessageId {
    fn from(id: [u8; 16]) -> Self {
        Self(id)
    }
}

impl From<u128> for MessageId {
    fn from(id: u128) -> Self {
        Self(id.to_be_bytes())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

// ===== impl Fingerprint =====

impl Fingerprint {
    /// Digests a payload.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        Self(digest(payload))
    }

    /// Digests the payload of a record.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        Self::of(record.payload.as_deref().unwrap_or_default())
    }

    /// The digest, to be stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl From<[u8; 16]> for Fingerprint {
    fn from(digest: [u8; 16]) -> Self {
        Self(digest)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:032x})", u128::from_be_bytes(self.0))
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, MessageId};
    use crate::{Record, TopicPartition};

    fn at(topic: &str, partition: i32, offset: i64) -> MessageId {
        MessageId::of_offset(&Record::new(TopicPartition::new(topic, partition), offset, ""))
    }

    #[test]
    fn ids_by_offset_differ_by_place_and_grow_with_the_offset() {
        assert_eq!(at("a", 1, 7), at("a", 1, 7));
        assert_ne!(at("a", 1, 7), at("a", 2, 7));
        assert_ne!(at("a", 1, 7), at("b", 1, 7));
        assert!(at("a", 1, 7) < at("a", 1, 8));
    }

    // The known answer of BLAKE3's specification, for the empty input.
    #[test]
    fn a_fingerprint_is_the_head_of_blake3() {
        let head = 0xaf13_49b9_f5f9_a1a6_a040_4dea_36dc_c949_u128;
        assert_eq!(Fingerprint::of(b"").to_bytes(), head.to_be_bytes());
        assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(b"b"));
    }

    #[test]
    fn a_tombstone_has_the_fingerprint_of_no_bytes() {
        let record = Record::new(TopicPartition::new("t", 0), 0, "x");
        let tombstone = Record { payload: None, ..record };
        assert_eq!(Fingerprint::of_record(&tombstone), Fingerprint::of(b""));
    }
}
