//! What the records say.

use tidegate::prelude::{Identified, MessageId, Record, Sequenced};
pub(crate) use tidegate_testkit::Transfer;

/// A transfer, and where it was read: what the judge of the effects asks for.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) transfer: Transfer,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

// ===== impl Entry =====

impl Entry {
    pub(crate) fn decode(record: &Record) -> Result<Self, serde_json::Error> {
        let transfer = serde_json::from_slice(record.payload.as_deref().unwrap_or_default())?;
        Ok(Self { transfer, partition: record.partition.partition, offset: record.offset })
    }

    /// The id, as databases have numbers.
    pub(crate) fn id(&self) -> i64 {
        // Topics are made with ids below 2^63.
        self.transfer.id.cast_signed()
    }
}

impl Identified for Entry {
    fn message_id(&self) -> MessageId {
        self.transfer.message_id()
    }
}

impl Sequenced for Entry {
    fn entity(&self) -> &[u8] {
        self.transfer.entity()
    }

    fn revision(&self) -> i64 {
        self.transfer.revision
    }
}
