//! Where a message's id comes from.

use std::sync::Arc;

use super::{Class, Delivery, Error, Identified, MessageId};

/// Finds the id of a delivery's message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell which message a `{T}` is",
    note = "an inbox takes ids from values that implement `Identified`, or from the record: `InboxLayer::by_offset`, `by_key`, `by_header`"
)]
pub trait Identify<T>: Clone + Send + Sync + 'static {
    /// The message's id.
    ///
    /// # Errors
    ///
    /// When the record has none: it is poison.
    fn identify(&self, delivery: &Delivery<T>) -> Result<MessageId, Error>;
}

/// The value says it: [`Identified`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByValue;

/// The record's place: [`MessageId::of_offset`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByOffset;

/// The hash of the record's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByKey;

/// The hash of a header's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHeader {
    name: Arc<str>,
}

/// A record lacks what its message's id is made from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoIdentity {
    /// Ids come from keys, and the record has none.
    #[error("the record has no key to take its message's id from")]
    Key,
    /// Ids come from a header, and the record has none of that name.
    #[error("the record has no header `{0}` to take its message's id from")]
    Header(Arc<str>),
}

// ===== impl ByHeader =====

impl ByHeader {
    /// Takes ids from the last header of that name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into() }
    }
}

// ===== impl Identify =====

impl<T: Identified> Identify<T> for ByValue {
    fn identify(&self, delivery: &Delivery<T>) -> Result<MessageId, Error> {
        Ok(delivery.value.message_id())
    }
}

impl<T> Identify<T> for ByOffset {
    fn identify(&self, delivery: &Delivery<T>) -> Result<MessageId, Error> {
        Ok(MessageId::of_offset(&delivery.record))
    }
}

impl<T> Identify<T> for ByKey {
    fn identify(&self, delivery: &Delivery<T>) -> Result<MessageId, Error> {
        let key = delivery.record.key.as_deref().ok_or(NoIdentity::Key);
        key.map(MessageId::of).map_err(|missing| missing.of(delivery))
    }
}

impl<T> Identify<T> for ByHeader {
    fn identify(&self, delivery: &Delivery<T>) -> Result<MessageId, Error> {
        let header = delivery.record.headers.get(&self.name);
        let value = header.and_then(|header| header.value.as_deref());
        let value = value.ok_or_else(|| NoIdentity::Header(Arc::clone(&self.name)));
        value.map(MessageId::of).map_err(|missing| missing.of(delivery))
    }
}

// ===== impl NoIdentity =====

impl NoIdentity {
    fn of<T>(self, delivery: &Delivery<T>) -> Error {
        Error::new(Class::Poison, self).with_culprit(delivery.culprit())
    }
}

#[cfg(test)]
mod tests {
    use super::{ByHeader, ByKey, ByOffset, Identify, NoIdentity};
    use crate::{Class, Delivery, Epoch, Header, Lease, MessageId, Record, TopicPartition};

    fn delivery(record: impl FnOnce(Record) -> Record) -> Delivery {
        let partition = TopicPartition::new("t", 0);
        let (_owner, lease) = Lease::grant(partition.clone(), Epoch::new(1, "m"));
        Delivery::new(lease, record(Record::new(partition, 3, "payload")))
    }

    #[test]
    fn ids_come_from_the_offset_the_key_or_a_header() {
        let plain = delivery(|record| record);
        assert_eq!(ByOffset.identify(&plain).unwrap(), MessageId::of_offset(&plain.record));
        let keyed = delivery(|record| record.with_key("k"));
        assert_eq!(ByKey.identify(&keyed).unwrap(), MessageId::of(b"k"));
        let headed = delivery(|record| record.with_headers([Header::new("id", "7")]));
        assert_eq!(ByHeader::new("id").identify(&headed).unwrap(), MessageId::of(b"7"));
    }

    #[test]
    fn a_record_without_an_id_is_poison_and_says_what_it_lacks() {
        let plain = delivery(|record| record);
        let error = ByKey.identify(&plain).unwrap_err();
        assert_eq!((error.class(), error.culprit()), (Class::Poison, Some(&plain.culprit())));
        assert_eq!(error.downcast_ref(), Some(&NoIdentity::Key));
        let error = ByHeader::new("id").identify(&plain).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&NoIdentity::Header("id".into())));
    }
}
