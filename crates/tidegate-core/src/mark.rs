use super::{Fingerprint, MessageId};

/// Which message it was, and what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The message.
    pub id: MessageId,
    /// Its payload.
    pub fingerprint: Fingerprint,
}

impl Mark {
    /// The message's id, and then the fingerprint, to be stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.id.to_bytes());
        bytes[16..].copy_from_slice(&self.fingerprint.to_bytes());
        bytes
    }
}
