mod guard;
mod session;

use std::{fmt, sync::Arc};

use sea_orm::{DatabaseTransaction, DbErr, RuntimeErr, TransactionSession, TransactionTrait};
use tidegate_core::Class;
use tokio::{
    runtime::Handle,
    sync::OwnedMutexGuard,
    task::{self, JoinError},
    time::Instant,
};

use self::guard::{Armed, Failure, Level, Shared, end};
use crate::{
    Database, EffectError, Namespace,
    dialect::{Dialect, Statements},
    error,
    metrics::Metrics,
};

/// A guarded transaction.
///
/// Statements run in it, from SeaORM's entities or by hand, and a nested
/// transaction is a savepoint. What cannot be done is to end it: that is its
/// [`TxnOwner`]'s. Rows cannot be streamed either, so that no half-read stream
/// is left when it ends.
///
/// A statement that fails, or whose future is dropped, fails the transaction:
/// it then refuses everything but the rollback of the nested transaction where
/// this happened, and it is not committed. (PostgreSQL would answer `COMMIT`
/// with a rollback that SeaORM takes for a success.)
///
/// A clone is another handle on the same transaction. Once the transaction has
/// ended, all handles refuse.
///
/// SQLite has one connection, and the transaction holds it. Work that takes
/// another one from the [`Database`] inside an effect waits until
/// [`DatabaseOptions::acquire_timeout`](crate::DatabaseOptions::acquire_timeout),
/// and fails.
// X2: it does not implement `StreamTrait`.
#[derive(Clone)]
pub struct Txn {
    shared: Arc<Shared>,
    // 0 is the transaction itself, 1 the first savepoint in it.
    level: usize,
    // A level ends with its last handle.
    alive: Arc<()>,
}

/// The right to commit a transaction. Dropped, it rolls back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct TxnOwner {
    txn: Txn,
    begun: Instant,
    metrics: Metrics,
    ended: bool,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Committed,
    RolledBack,
    // `COMMIT` was refused.
    Failed,
    // The connection was lost at `COMMIT`.
    Unknown,
}

// ===== impl TxnOwner =====

impl TxnOwner {
    pub(crate) fn new(database: &Database, txn: DatabaseTransaction) -> Self {
        let alive = Arc::default();
        let shared = Shared::new(database.dialect(), database.namespace().clone(), txn, &alive);
        let txn = Txn { shared: Arc::new(shared), level: 0, alive };
        let metrics = database.metrics().clone();
        Self { txn, begun: Instant::now(), metrics, ended: false }
    }

    /// A handle on the transaction.
    #[must_use]
    pub fn txn(&self) -> Txn {
        self.txn.clone()
    }

    /// Commits, if nothing failed and no nested transaction is open.
    ///
    /// # Errors
    ///
    /// When the transaction failed earlier, or `COMMIT` does. If the connection
    /// is lost at `COMMIT`, only the database knows what became of it: claiming
    /// a message again waits for the answer.
    ///
    /// # Cancel safety
    ///
    /// `COMMIT` runs in a task of its own, and goes on when this is dropped.
    pub async fn commit(mut self) -> Result<(), DbErr> {
        let mut levels = self.txn.shared.lock().await;
        if let Some(failure) = self.txn.shared.failure() {
            return Err(failure.cause);
        }
        let Some(level) = levels.pop().filter(|_| levels.is_empty()) else {
            return Err(refused("a nested transaction is open"));
        };
        drop(levels);
        self.ended = true;
        let (begun, metrics) = (self.begun, self.metrics.clone());
        let committed = task::spawn(async move {
            let result = level.txn.commit().await;
            metrics.ended(Ending::of_commit(&result), begun.elapsed());
            result
        });
        joined(committed.await)
    }
}

impl Drop for TxnOwner {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.metrics.ended(Ending::RolledBack, self.begun.elapsed());
        let levels = self.txn.shared.levels();
        if let Ok(mut levels) = levels.clone().try_lock_owned() {
            end(&mut levels, 0);
            return;
        }
        // A handle that someone kept is running a statement. There is no runtime
        // only when there is none of its tasks either, to hold the lock.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let mut levels = levels.lock_owned().await;
                end(&mut levels, 0);
            });
        }
    }
}

impl fmt::Debug for TxnOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxnOwner").field("txn", &self.txn).finish_non_exhaustive()
    }
}

// ===== impl Txn =====

impl Txn {
    /// The namespace that it works in.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        self.shared.namespace()
    }

    /// Does some of the work in a savepoint, and rolls that back if it fails.
    ///
    /// What `transaction` of SeaORM does, for a closure that may borrow:
    ///
    /// ```
    /// use sea_orm::ConnectionTrait as _;
    /// use tidegate_sql::{DbErr, Txn};
    ///
    /// async fn effect(txn: &Txn, statement: &str) -> Result<(), DbErr> {
    ///     let tried = txn
    ///         .nested(async |nested| {
    ///             nested.execute_unprepared(statement).await?;
    ///             Ok::<_, DbErr>(())
    ///         })
    ///         .await;
    ///     if tried.is_err() {
    ///         txn.execute_unprepared("INSERT INTO failures DEFAULT VALUES").await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// What `work` fails with, or the database.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, the transaction fails.
    pub async fn nested<V, E: From<DbErr>>(
        &self,
        work: impl AsyncFnOnce(&Self) -> Result<V, E>,
    ) -> Result<V, E> {
        let nested = TransactionTrait::begin(self).await?;
        let result = work(&nested).await;
        match result {
            Ok(_) => TransactionSession::commit(nested).await?,
            Err(_) => TransactionSession::rollback(nested).await?,
        }
        result
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.shared.dialect()
    }

    pub(crate) fn statements(&self) -> &'static dyn Statements {
        self.shared.dialect().statements()
    }

    /// Decides about the result of an effect by what happened in the
    /// transaction: an effect may have swallowed an error, or may have taken
    /// a lost connection for something that the record is to blame for.
    pub(crate) fn judge(&self, result: Result<(), EffectError>) -> Result<(), EffectError> {
        let Some(Failure { cause, .. }) = self.shared.failure() else { return result };
        let cause = EffectError::from(cause);
        match result {
            Err(error) if cause.class() != Class::Transient => Err(error),
            _ => Err(cause),
        }
    }

    async fn run<V>(
        &self,
        statement: impl AsyncFnOnce(&DatabaseTransaction) -> Result<V, DbErr>,
    ) -> Result<V, DbErr> {
        let levels = self.top().await?;
        let guard = Armed::new(self);
        let result = statement(&levels[self.level].txn).await;
        guard.disarm(result)
    }

    /// Waits until no other statement runs in the transaction.
    async fn top(&self) -> Result<OwnedMutexGuard<Vec<Level>>, DbErr> {
        let levels = self.shared.lock().await;
        if let Some(failure) = self.shared.failure() {
            return Err(refused(&format!("it failed before: {}", failure.cause)));
        }
        self.on_top(levels)
    }

    fn on_top(
        &self,
        levels: OwnedMutexGuard<Vec<Level>>,
    ) -> Result<OwnedMutexGuard<Vec<Level>>, DbErr> {
        match levels.get(self.level) {
            Some(level) if !level.is_of(&self.alive) => Err(refused("it has ended")),
            None => Err(refused("it has ended")),
            Some(_) if levels.len() > self.level + 1 => {
                Err(refused("a nested transaction is open"))
            }
            Some(_) => Ok(levels),
        }
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Txn").field("level", &self.level).finish_non_exhaustive()
    }
}

// ===== impl Ending =====

impl Ending {
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the labels of a metric"))]
    pub(crate) const ALL: [Self; 4] =
        [Self::Committed, Self::RolledBack, Self::Failed, Self::Unknown];

    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the label of a metric"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled_back",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    fn of_commit(result: &Result<(), DbErr>) -> Self {
        match result {
            Ok(()) => Self::Committed,
            Err(error) if error::is_lost(error) => Self::Unknown,
            Err(_) => Self::Failed,
        }
    }
}

/// What a task of ours answered. One that panicked or was ended with its
/// runtime leaves it unknown: trying again finds out.
pub(crate) fn joined<V>(result: Result<Result<V, DbErr>, JoinError>) -> Result<V, DbErr> {
    result.unwrap_or_else(|error| Err(DbErr::Conn(RuntimeErr::Internal(error.to_string()))))
}

fn refused(why: &str) -> DbErr {
    DbErr::Custom(format!("the transaction takes no statement: {why}"))
}
