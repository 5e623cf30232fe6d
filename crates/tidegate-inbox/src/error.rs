use tidegate_core::{Class, Error, MessageId, TopicId, TopicPartition};

/// A message came a second time with another payload.
///
/// Nothing of the second one is applied, and nothing of the first overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {id} was seen before with another payload")]
#[non_exhaustive]
pub struct Conflict {
    /// The message.
    pub id: MessageId,
}

/// The topic is not the one that the namespace has read so far: it was deleted,
/// and made anew.
///
/// Offsets begin again at 0, so what the namespace knows about them says nothing
/// about these records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{partition} belongs to the topic with the id {found}, and the inbox knows the one with the id {known}: take a new namespace, or, if ids do not come from offsets, accept the topic with `Inbox::accept_topic`"
)]
#[non_exhaustive]
pub struct TopicChanged {
    /// The partition.
    pub partition: TopicPartition,
    /// The topic that it belonged to.
    pub known: TopicId,
    /// The topic that it belongs to.
    pub found: TopicId,
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::new(Class::Poison, conflict)
    }
}

impl From<TopicChanged> for Error {
    fn from(changed: TopicChanged) -> Self {
        Self::new(Class::Fatal, changed)
    }
}
