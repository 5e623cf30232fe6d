//! The ledger: the record and the table that the test kit's generator, the
//! examples and the fault lab have in common.

use serde::Deserialize;

use crate::{Meaning, Message, MessageId, RawRecord};

/// The table of effects, for PostgreSQL.
///
/// Each row is one effect: which message, what it changed, the record that it
/// was made of, and who made it under which epoch. `seq` is the order in which
/// effects were made.
///
/// It has no key over `id` or `revision`, on purpose: a second effect must
/// show, not fail.
pub const ENTRY_POSTGRES: &str = "CREATE TABLE entry (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id bigint NOT NULL,
    account text NOT NULL,
    revision bigint NOT NULL,
    amount bigint NOT NULL CHECK (amount < 1000000),
    topic text NOT NULL,
    part int NOT NULL,
    record_offset bigint NOT NULL,
    worker text NOT NULL,
    epoch bigint NOT NULL
)";

/// The table of effects, for SQLite. See [`ENTRY_POSTGRES`].
pub const ENTRY_SQLITE: &str = "CREATE TABLE entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id INTEGER NOT NULL,
    account TEXT NOT NULL,
    revision INTEGER NOT NULL,
    amount INTEGER NOT NULL CHECK (amount < 1000000),
    topic TEXT NOT NULL,
    part INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    worker TEXT NOT NULL,
    epoch INTEGER NOT NULL
) STRICT";

/// The amount from which on the tables above take no transfer.
pub const AMOUNT_LIMIT: i64 = 1_000_000;

#[derive(Deserialize)]
struct Transfer {
    id: u64,
    account: String,
    revision: i64,
    amount: i64,
}

/// Reads a record as a transfer: JSON with `id`, `account`, `revision` and
/// `amount`.
///
/// A transfer of `limit` or more is one that no database takes; for the tables
/// above that is [`AMOUNT_LIMIT`].
pub fn meaning(limit: i64) -> impl Fn(&RawRecord) -> Meaning {
    move |record| {
        let payload = record.payload.as_deref().unwrap_or_default();
        let Ok(transfer) = serde_json::from_slice::<Transfer>(payload) else {
            return Meaning::Undecodable;
        };
        let Transfer { id, account: entity, revision, amount } = transfer;
        let id = MessageId(id.into());
        Meaning::Message(Message { id, entity, revision, amount, appliable: amount < limit })
    }
}
