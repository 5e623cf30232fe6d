//! The effect: an entry for each transfer, and the balance of its account.

use tidegate::{core::Lease, prelude::*};
use tidegate_testkit::Transfer;

/// A transfer, and the record that it came in.
///
/// The ledger keeps the place of the record in each entry, for the audit. An
/// effect that does not need it takes the transfer alone.
#[derive(Clone, Debug)]
pub(crate) struct Posting {
    transfer: Transfer,
    partition: TopicPartition,
    offset: i64,
}

/// Applies postings, in the name of a worker and of its assignment.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    worker: String,
    generation: i64,
}

// ===== impl Posting =====

impl Posting {
    pub(crate) fn decode(record: &Record) -> Result<Self, serde_json::Error> {
        let transfer = serde_json::from_slice(record.payload.as_deref().unwrap_or_default())?;
        Ok(Self { transfer, partition: record.partition.clone(), offset: record.offset })
    }
}

impl Identified for Posting {
    fn message_id(&self) -> MessageId {
        self.transfer.message_id()
    }
}

impl Sequenced for Posting {
    fn entity(&self) -> &[u8] {
        self.transfer.entity()
    }

    fn revision(&self) -> i64 {
        self.transfer.revision()
    }
}

// ===== impl Ledger =====

impl Ledger {
    pub(crate) fn new(worker: &str, lease: &Lease) -> Self {
        let generation = lease.epoch().generation.into();
        Self { worker: worker.to_owned(), generation }
    }
}

impl Effect<Posting> for Ledger {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, posting: &Posting) -> Result<(), DbErr> {
        let Posting { transfer, partition, offset } = posting;
        let entry = "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let id = i64::try_from(transfer.id).map_err(|_| DbErr::Custom("an id too large".into()))?;
        let values = [
            id.into(),
            transfer.account.as_str().into(),
            transfer.revision.into(),
            transfer.amount.into(),
            (*partition.topic).into(),
            partition.partition.into(),
            (*offset).into(),
            self.worker.as_str().into(),
            self.generation.into(),
        ];
        let backend = txn.get_database_backend();
        txn.execute_raw(Statement::from_sql_and_values(backend, entry, values)).await?;
        let balance = "INSERT INTO balance (account, amount) VALUES ($1, $2)
            ON CONFLICT (account) DO UPDATE SET amount = balance.amount + excluded.amount";
        let values = [transfer.account.as_str().into(), transfer.amount.into()];
        txn.execute_raw(Statement::from_sql_and_values(backend, balance, values)).await.map(drop)
    }
}
