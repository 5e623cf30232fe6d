use std::collections::BTreeSet;

use tidegate_core::{Class, DeadLetters, Error, Lease, Record, TopicPartition};

use crate::{Database, DbErr, EffectError, tables::letters};

pub use crate::tables::letters::Letter;

/// Stores dead letters in the database of the effects.
///
/// A letter belongs to the namespace of the database: a rebuild into a new one
/// tries every record again.
///
/// ```no_run
/// use tidegate_core::TopicPartition;
/// use tidegate_sql::{DbErr, DeadLetterTable};
///
/// async fn try_all_again(letters: &DeadLetterTable) -> Result<(), DbErr> {
///     let partition = TopicPartition::new("transfers", 3);
///     for letter in letters.list(&partition, 0, 100).await? {
///         println!("{}: {}", letter.record.offset, letter.cause);
///         letters.retry(&partition, letter.record.offset).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetterTable {
    database: Database,
}

/// The lease ended before the transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease ended before the commit")]
pub struct LeaseEnded;

// ===== impl DeadLetterTable =====

impl DeadLetterTable {
    /// Stores letters in the database's namespace.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The letters of a partition, from an offset on and at most `limit`, in the
    /// order of their offsets.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn list(
        &self,
        partition: &TopicPartition,
        from: i64,
        limit: u32,
    ) -> Result<Vec<Letter>, DbErr> {
        let owner = self.database.begin().await?;
        letters::list(&owner.txn(), partition, from, limit.into()).await
    }

    /// Forgets a letter, so that its record is tried when it is delivered the
    /// next time. Returns whether there was one.
    ///
    /// It is delivered again when the group's offset is set back to it. A record
    /// that was parked before it was buried has a marker in the inbox, which
    /// goes with the letter. Below the floor of its partition, a record is
    /// `TooOld` all the same.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn retry(&self, partition: &TopicPartition, offset: i64) -> Result<bool, DbErr> {
        let owner = self.database.begin().await?;
        let found = letters::remove(&owner.txn(), partition, offset).await?;
        owner.commit().await?;
        Ok(found)
    }

    async fn store(&self, lease: &Lease, record: &Record, cause: &Error) -> Result<(), Error> {
        if !lease.is_held() {
            return Err(LeaseEnded.into());
        }
        let owner = self.database.begin().await.map_err(EffectError::from)?;
        let letter = (cause.class().as_str(), &*cause.chain());
        let new = letters::bury(&owner.txn(), record, letter).await.map_err(EffectError::from)?;
        if !lease.is_held() {
            return Err(LeaseEnded.into());
        }
        owner.commit().await.map_err(EffectError::from)?;
        self.database.metrics().buried(new.into());
        Ok(())
    }
}

impl DeadLetters for DeadLetterTable {
    /// Stores a record, in a transaction of its own.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, it may be stored or not; storing it again is
    /// storing it once.
    async fn bury(&self, lease: &Lease, record: &Record, cause: &Error) -> Result<(), Error> {
        self.store(lease, record, cause).await?;
        tracing::debug!(
            partition = %record.partition,
            offset = record.offset,
            cause = cause.chain(),
            "stored a record as a dead letter",
        );
        Ok(())
    }

    async fn buried(&self, partition: &TopicPartition, from: i64) -> Result<BTreeSet<i64>, Error> {
        let ns = self.database.namespace().number();
        let buried = letters::buried(self.database.connection(), ns, partition, from).await;
        Ok(buried.map_err(EffectError::from)?)
    }
}

// ===== impl LeaseEnded =====

impl From<LeaseEnded> for Error {
    fn from(ended: LeaseEnded) -> Self {
        Self::new(Class::Fenced, ended)
    }
}
