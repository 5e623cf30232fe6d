use super::{Fingerprint, MessageId};

/// Which message it was, and what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The message.
    pub id: MessageId,
    /// Its payload.
    pub fingerprint: Fingerprint,
}
