//! A topic of transfers, and the truth about it, by a seed.

mod chance;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::{Identified, MessageId, Sequenced};

/// What a topic of transfers is to hold.
///
/// Everything is a number and not a rate, so that a test knows what it gets.
/// The same configuration makes the same topic, also with a later version of
/// this crate.
///
/// ```
/// use tidegate_testkit::LedgerConfig;
///
/// let mut config = LedgerConfig::new(42, 1_000);
/// config.refused = 0;
/// let ledger = config.generate();
/// assert_eq!(ledger.counts.transfers, 1_000);
/// // None is refused, so all are applied.
/// let entries: usize = ledger.accounts.values().map(|it| it.entries.len()).sum();
/// assert_eq!(entries, 1_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerConfig {
    /// The seed of all chance.
    pub seed: u64,
    /// Transfers, each counted once.
    pub transfers: usize,
    /// Accounts over which they are spread.
    pub accounts: usize,
    /// Partitions of the topic. An account's records are all in one.
    pub partitions: i32,
    /// Copies of records, each somewhere behind the first.
    pub duplicates: usize,
    /// Transfers that have changed places with the one before them.
    pub swaps: usize,
    /// Transfers that come long after their successors.
    pub late: usize,
    /// Records that say something else about a transfer that was there.
    pub conflicts: usize,
    /// Records that are no transfers.
    pub poison: usize,
    /// Transfers that can be decoded, and that no database takes. Each is
    /// followed by transfers of its account, which wait for it in vain.
    pub refused: usize,
    /// The amount from which on a database takes no transfer.
    pub limit: i64,
}

/// A topic of transfers, and the truth about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// The records, in an order in which they may be written: each partition's
    /// in the order of its offsets.
    pub records: Vec<LedgerRecord>,
    /// What becomes of each account, by its name.
    pub accounts: BTreeMap<String, Account>,
    /// How much there is of what.
    pub counts: LedgerCounts,
}

/// A record of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerRecord {
    /// The partition to write it to.
    pub partition: i32,
    /// The offset that it gets there, if the topic was empty.
    pub offset: i64,
    /// The key: the account.
    pub key: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// What kind of record it is.
    pub kind: RecordKind,
}

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// A transfer, for the first time.
    Transfer,
    /// A copy of a transfer.
    Duplicate,
    /// The id and revision of a transfer, with another amount.
    Conflict,
    /// No transfer.
    Poison,
    /// A transfer that no database takes.
    Refused,
}

/// What becomes of an account, by Tidegate's rules.
///
/// The first payload of a transfer counts, each counts once, in the order of
/// revisions; what follows one that no database takes stays parked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// The sum of its entries.
    pub balance: i64,
    /// The transfers that are applied, in the order in which they are.
    pub entries: Vec<Transfer>,
    /// The transfers that stay parked.
    pub parked: Vec<Transfer>,
}

/// How much a topic holds of what, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerCounts {
    /// Records, all in all.
    pub records: usize,
    /// Transfers, each counted once.
    pub transfers: usize,
    /// Copies of transfers.
    pub duplicates: usize,
    /// Transfers that have changed places with the one before them.
    pub swaps: usize,
    /// Transfers that come long after their successors.
    pub late: usize,
    /// Records that contradict an earlier one.
    pub conflicts: usize,
    /// Records that are no transfers.
    pub poison: usize,
    /// Transfers that no database takes.
    pub refused: usize,
    /// Transfers that are applied.
    pub applied: usize,
    /// Transfers that stay parked.
    pub parked: usize,
    /// Records that become dead letters.
    pub buried: usize,
}

/// A transfer to or from an account: the value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Which transfer it is.
    pub id: u64,
    /// The account.
    pub account: String,
    /// Its place in the account's history, from 1.
    pub revision: i64,
    /// By how much the balance changes.
    pub amount: i64,
}

// ===== impl LedgerConfig =====

impl LedgerConfig {
    /// A topic with some of everything: one transfer in twenty is copied and
    /// one in twenty swapped, some come late, one is contradicted, one record
    /// is no transfer, and no database takes one.
    #[must_use]
    pub fn new(seed: u64, transfers: usize) -> Self {
        Self {
            seed,
            transfers,
            accounts: (transfers / 20).clamp(1, 200),
            partitions: 8,
            duplicates: transfers / 20,
            swaps: transfers / 20,
            late: transfers / 1000,
            conflicts: 1.min(transfers / 100),
            poison: 1.min(transfers / 100),
            refused: 1.min(transfers / 100),
            limit: 1_000_000,
        }
    }

    /// Makes the topic.
    ///
    /// Where there is no room for all that is asked for, there is less of it:
    /// an account with one transfer cannot have two swapped. The
    /// [counts](Ledger::counts) say what there is.
    ///
    /// # Panics
    ///
    /// Without an account or a partition, or with a limit under 1001.
    #[must_use]
    pub fn generate(&self) -> Ledger {
        write::write(self)
    }
}

// ===== impl Transfer =====

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        u128::from(self.id).into()
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
