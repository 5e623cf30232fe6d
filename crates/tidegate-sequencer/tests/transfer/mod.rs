//! The application's value in tests: it is its numbers and name as text, one
//! after the other.

use tidegate_core::{BoxError, Identified, MessageId, Record, Sequenced};

/// What the records of these tests say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transfer {
    pub(crate) id: u128,
    pub(crate) account: String,
    pub(crate) revision: i64,
    pub(crate) amount: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        self.id.into()
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

/// A transfer is its numbers and name, one after the other.
pub(crate) fn encode(Transfer { id, account, revision, amount }: &Transfer) -> String {
    format!("{id} {account} {revision} {amount}")
}

pub(crate) fn decode(record: &Record) -> Result<Transfer, BoxError> {
    let text = str::from_utf8(record.payload.as_deref().unwrap_or_default())?;
    let [id, account, revision, amount] = text.split(' ').collect::<Vec<_>>()[..] else {
        return Err("a transfer has four parts".into());
    };
    let (id, revision, amount) = (id.parse()?, revision.parse()?, amount.parse()?);
    Ok(Transfer { id, account: account.to_owned(), revision, amount })
}
