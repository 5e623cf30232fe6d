use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate::prelude::*;
use tidegate_testkit::Transfer;
use tokio::time::sleep;

/// A transfer, and the record that it came in.
#[derive(Debug)]
pub(super) struct Entry {
    transfer: Transfer,
    partition: TopicPartition,
    offset: i64,
}

/// Writes an entry for each transfer, as the oracle reads it.
pub(super) struct Ledger {
    pub(super) worker: Arc<str>,
    pub(super) epoch: i64,
    pub(super) work: Duration,
    /// What the accounts have, where each effect overwrites that as well.
    pub(super) balances: Option<Balances>,
}

/// What accounts have, as far as one stack knows: a stale one knows it no more.
#[derive(Default)]
pub(super) struct Balances(Mutex<HashMap<String, i64>>);

/// Decodes a record, and keeps its place.
pub(super) fn decode(record: &Record) -> Result<Entry, serde_json::Error> {
    let payload = record.payload.as_deref().unwrap_or_default();
    let transfer = serde_json::from_slice(payload)?;
    Ok(Entry { transfer, partition: record.partition.clone(), offset: record.offset })
}

// ===== impl Entry =====

impl Identified for Entry {
    fn message_id(&self) -> MessageId {
        self.transfer.message_id()
    }
}

impl Sequenced for Entry {
    fn entity(&self) -> &[u8] {
        self.transfer.entity()
    }

    fn revision(&self) -> i64 {
        self.transfer.revision
    }
}

// ===== impl Ledger =====

impl Effect<Entry> for Ledger {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, entry: &Entry) -> Result<(), DbErr> {
        let Entry { transfer, partition, offset } = entry;
        let sql = "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let id = i64::try_from(transfer.id).map_err(|error| DbErr::Custom(error.to_string()))?;
        let values = [
            id.into(),
            transfer.account.as_str().into(),
            transfer.revision.into(),
            transfer.amount.into(),
            (*partition.topic).into(),
            partition.partition.into(),
            (*offset).into(),
            (*self.worker).into(),
            self.epoch.into(),
        ];
        let backend = txn.get_database_backend();
        txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        if let Some(balances) = &self.balances {
            balances.overwrite(txn, transfer).await?;
        }
        if !self.work.is_zero() {
            sleep(self.work).await;
        }
        Ok(())
    }
}

// ===== impl Balances =====

impl Balances {
    /// Without a look at what the row has by now.
    async fn overwrite(&self, txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
        let account = &transfer.account;
        let known = self.known().get(account).copied();
        let before = match known {
            Some(balance) => balance,
            None => read(txn, account).await?,
        };
        let after = before + transfer.amount;
        let sql = "INSERT INTO account (name, balance) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET balance = excluded.balance";
        let values = [account.as_str().into(), after.into()];
        let backend = txn.get_database_backend();
        txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        self.known().insert(account.clone(), after);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(txn: &Txn, account: &str) -> Result<i64, DbErr> {
    let sql = "SELECT balance FROM account WHERE name = $1";
    let backend = txn.get_database_backend();
    let statement = Statement::from_sql_and_values(backend, sql, [account.into()]);
    let row = txn.query_one_raw(statement).await?;
    row.map_or(Ok(0), |row| row.try_get_by_index(0))
}
