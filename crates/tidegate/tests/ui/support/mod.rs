//! What the wrong stacks have in common.
#![allow(dead_code, unused_imports)]

pub use serde::Deserialize;
pub use tidegate::prelude::*;
pub use tower::ServiceBuilder;

#[derive(Deserialize)]
pub struct Transfer {
    pub account: String,
    pub revision: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        MessageId::from(self.revision.unsigned_abs() as u128)
    }
}

impl Sequenced for Transfer {
    fn entity(&self) -> &[u8] {
        self.account.as_bytes()
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

pub fn source() -> KafkaSource {
    unreachable!("only compiled")
}

pub fn inbox() -> Inbox {
    unreachable!("only compiled")
}

pub fn sequencer() -> Sequencer<Transfer> {
    Sequencer::parking(Json::<Transfer>::default())
}
