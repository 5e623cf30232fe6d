use serde_json::json;
use tidegate_testkit::{Ledger, LedgerConfig, LedgerRecord, NewRecord};

/// The partitions of most topics.
pub(super) const PARTITIONS: i32 = 2;

/// A ledger with some of everything, in two parts: what is there before an
/// experiment begins, and what it is about.
pub(super) fn ledger(seed: u64, transfers: usize) -> Halves {
    ledger_with(seed, transfers, |_| {})
}

/// A ledger with some of everything, over so many partitions.
pub(super) fn wide(seed: u64, transfers: usize, partitions: i32) -> Halves {
    ledger_with(seed, transfers, |config| config.partitions = partitions)
}

/// A ledger that holds nothing but transfers, in their order.
pub(super) fn plain(seed: u64, transfers: usize, accounts: usize) -> Halves {
    plain_over(seed, transfers, accounts, PARTITIONS)
}

/// The same, over so many partitions.
pub(super) fn plain_over(seed: u64, transfers: usize, accounts: usize, partitions: i32) -> Halves {
    ledger_with(seed, transfers, |config| {
        config.partitions = partitions;
        config.accounts = accounts;
        config.duplicates = 0;
        config.swaps = 0;
        config.late = 0;
        config.conflicts = 0;
        config.poison = 0;
        config.refused = 0;
    })
}

/// The records of a topic in two parts.
pub(super) struct Halves {
    pub(super) first: Vec<LedgerRecord>,
    pub(super) second: Vec<LedgerRecord>,
}

// ===== impl Halves =====

impl Halves {
    fn of(ledger: Ledger) -> Self {
        let mut first = ledger.records;
        let second = first.split_off(first.len() / 2);
        Self { first, second }
    }

    /// The first offset of a partition's second half.
    pub(super) fn middle(&self, partition: i32) -> i64 {
        let first = self.first.iter().filter(|record| record.partition == partition);
        i64::try_from(first.count()).expect("a topic of ours is small")
    }
}

/// A ledger with some of everything, and a change to how much of what.
pub(super) fn ledger_with(
    seed: u64,
    transfers: usize,
    change: impl FnOnce(&mut LedgerConfig),
) -> Halves {
    let mut config = LedgerConfig::new(seed, transfers);
    config.partitions = PARTITIONS;
    change(&mut config);
    Halves::of(config.generate())
}

/// One transfer.
pub(super) fn delta(
    partition: i32,
    id: i64,
    account: &str,
    revision: i64,
    amount: i64,
) -> NewRecord {
    let transfer = json!({ "id": id, "account": account, "revision": revision, "amount": amount });
    NewRecord::new(partition, transfer.to_string()).with_key(account)
}
