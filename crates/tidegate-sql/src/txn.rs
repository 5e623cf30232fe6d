use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak},
};

use sea_orm::{
    AccessMode, ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, ExecResult, IsolationLevel,
    QueryResult, RuntimeErr, Statement, TransactionError, TransactionOptions, TransactionSession,
    TransactionTrait,
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard},
    task::{self, JoinError},
};

use super::{EffectError, Namespace};
use tidegate_core::Class;

/// A guarded transaction.
///
/// Statements run in it, from SeaORM's entities or by hand, and a nested
/// transaction is a savepoint. What cannot be done is to end it: that is its
/// [`TxnOwner`]'s.
///
/// A statement that fails, or whose future is dropped, fails the transaction:
/// it then refuses everything but the rollback of the nested transaction where
/// this happened, and it is not committed. (PostgreSQL would answer `COMMIT`
/// with a rollback that SeaORM takes for a success.)
///
/// A clone is another handle on the same transaction. Once the transaction has
/// ended, all handles refuse.
#[derive(Clone)]
pub struct Txn {
    shared: Arc<Shared>,
    // 0 is the transaction itself, 1 the first savepoint in it.
    level: usize,
    // A level ends with its last handle.
    alive: Arc<()>,
}

/// The right to commit a transaction. Dropped, it rolls back.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct TxnOwner {
    txn: Txn,
}

struct Shared {
    backend: DbBackend,
    returning: bool,
    namespace: Namespace,
    // Held for as long as a statement runs. Empty once the transaction has ended.
    levels: Arc<Mutex<Vec<Level>>>,
    failure: StdMutex<Option<Failure>>,
}

struct Level {
    txn: DatabaseTransaction,
    alive: Weak<()>,
}

/// The first thing that went wrong, and in which level.
#[derive(Clone)]
struct Failure {
    level: usize,
    cause: DbErr,
}

/// Fails the transaction unless it is disarmed: a future that is dropped while
/// a statement runs leaves nobody who knows what became of it.
struct Armed<'a> {
    txn: &'a Txn,
    armed: bool,
}

// ===== impl TxnOwner =====

impl TxnOwner {
    pub(super) fn new(namespace: Namespace, txn: DatabaseTransaction) -> Self {
        let alive = Arc::default();
        let (backend, returning) = (txn.get_database_backend(), txn.support_returning());
        let level = Level { txn, alive: Arc::downgrade(&alive) };
        let levels = Arc::new(Mutex::new(vec![level]));
        let shared = Shared { backend, returning, namespace, levels, failure: StdMutex::default() };
        Self { txn: Txn { shared: Arc::new(shared), level: 0, alive } }
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
    /// is lost at `COMMIT`, only the database knows what became of it.
    ///
    /// # Cancel safety
    ///
    /// `COMMIT` runs in a task of its own, and goes on when this is dropped.
    pub async fn commit(self) -> Result<(), DbErr> {
        let mut levels = self.txn.shared.levels.clone().lock_owned().await;
        self.txn.shared.end_abandoned(&mut levels);
        if let Some(failure) = self.txn.failure() {
            return Err(failure.cause);
        }
        let Some(level) = levels.pop().filter(|_| levels.is_empty()) else {
            return Err(refused("a nested transaction is open"));
        };
        drop(levels);
        joined(task::spawn(level.txn.commit()).await)
    }
}

impl Drop for TxnOwner {
    fn drop(&mut self) {
        let levels = Arc::clone(&self.txn.shared.levels);
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

// ===== impl Txn =====

impl Txn {
    /// The namespace that it works in.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.shared.namespace
    }

    /// Does some of the work in a savepoint, and rolls that back if it fails.
    ///
    /// What `transaction` of SeaORM does, for a closure that may borrow:
    ///
    /// ```
    /// # use sea_orm::ConnectionTrait as _;
    /// # use tidegate_sql::{DbErr, Txn};
    /// # async fn effect(txn: &Txn, account: &str) -> Result<(), DbErr> {
    /// txn.nested(async |nested| {
    ///     nested.execute_unprepared(account).await?;
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What `work` fails with, or the database.
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

    /// Decides about the result of an effect by what happened in the
    /// transaction: an effect may have swallowed an error, or may have taken
    /// a lost connection for something that the record is to blame for.
    pub(super) fn judge(&self, result: Result<(), EffectError>) -> Result<(), EffectError> {
        let Some(Failure { cause, .. }) = self.failure() else { return result };
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
        let guard = Armed { txn: self, armed: true };
        let result = statement(&levels[self.level].txn).await;
        guard.disarm(result)
    }

    /// Waits until no other statement runs in the transaction.
    async fn top(&self) -> Result<OwnedMutexGuard<Vec<Level>>, DbErr> {
        let mut levels = self.shared.levels.clone().lock_owned().await;
        self.shared.end_abandoned(&mut levels);
        if let Some(failure) = self.failure() {
            return Err(refused(&format!("it failed before: {}", failure.cause)));
        }
        self.on_top(levels)
    }

    fn on_top(
        &self,
        levels: OwnedMutexGuard<Vec<Level>>,
    ) -> Result<OwnedMutexGuard<Vec<Level>>, DbErr> {
        match levels.get(self.level) {
            Some(level) if !std::ptr::eq(level.alive.as_ptr(), Arc::as_ptr(&self.alive)) => {
                Err(refused("it has ended"))
            }
            None => Err(refused("it has ended")),
            Some(_) if levels.len() > self.level + 1 => {
                Err(refused("a nested transaction is open"))
            }
            Some(_) => Ok(levels),
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.shared.failure().clone()
    }

    fn fail(&self, cause: DbErr) {
        self.shared.failure().get_or_insert(Failure { level: self.level, cause });
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Txn {
    fn get_database_backend(&self) -> DbBackend {
        self.shared.backend
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        self.run(async |txn| txn.execute_raw(statement).await).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.run(async |txn| txn.execute_unprepared(sql).await).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        self.run(async |txn| txn.query_one_raw(statement).await).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        self.run(async |txn| txn.query_all_raw(statement).await).await
    }

    fn support_returning(&self) -> bool {
        self.shared.returning
    }
}

#[async_trait::async_trait]
impl TransactionTrait for Txn {
    type Transaction = Self;

    async fn begin(&self) -> Result<Self, DbErr> {
        self.begin_with_options(TransactionOptions::default()).await
    }

    async fn begin_with_config(
        &self,
        isolation_level: Option<IsolationLevel>,
        access_mode: Option<AccessMode>,
    ) -> Result<Self, DbErr> {
        let options =
            TransactionOptions { isolation_level, access_mode, ..TransactionOptions::default() };
        self.begin_with_options(options).await
    }

    async fn begin_with_options(&self, options: TransactionOptions) -> Result<Self, DbErr> {
        let mut levels = self.top().await?;
        let guard = Armed { txn: self, armed: true };
        let alive = Arc::default();
        let weak = Arc::downgrade(&alive);
        // Cancelled halfway, a SAVEPOINT makes SQLx roll back all there is and
        // go on without a transaction. So it is not cancelled.
        let begun = task::spawn(async move {
            let txn = levels[levels.len() - 1].txn.begin_with_options(options).await?;
            levels.push(Level { txn, alive: weak });
            Ok(())
        });
        guard.disarm(joined(begun.await))?;
        Ok(Self { shared: Arc::clone(&self.shared), level: self.level + 1, alive })
    }

    async fn transaction<F, T, E>(&self, callback: F) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c Self) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
            + Send,
        T: Send,
        E: fmt::Display + fmt::Debug + Send,
    {
        self.transaction_with_config(callback, None, None).await
    }

    async fn transaction_with_config<F, T, E>(
        &self,
        callback: F,
        isolation_level: Option<IsolationLevel>,
        access_mode: Option<AccessMode>,
    ) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c Self) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
            + Send,
        T: Send,
        E: fmt::Display + fmt::Debug + Send,
    {
        let nested = self.begin_with_config(isolation_level, access_mode).await?;
        match callback(&nested).await {
            Ok(value) => {
                TransactionSession::commit(nested).await?;
                Ok(value)
            }
            Err(error) => {
                TransactionSession::rollback(nested).await?;
                Err(TransactionError::Transaction(error))
            }
        }
    }
}

/// Ends a nested transaction. The transaction itself is not the effect's to end.
#[async_trait::async_trait]
impl TransactionSession for Txn {
    async fn commit(self) -> Result<(), DbErr> {
        let mut levels = self.top().await?;
        if self.level == 0 {
            return Err(refused("its owner commits it"));
        }
        let guard = Armed { txn: &self, armed: true };
        let level = levels.pop().expect("it is on top");
        // The levels stay locked until the task has ended.
        let committed = task::spawn(async move {
            let result = level.txn.commit().await;
            drop(levels);
            result
        });
        let result = guard.disarm(joined(committed.await));
        if result.is_err() {
            // What is in doubt now is all that the savepoint was part of.
            if let Some(failure) = &mut *self.shared.failure() {
                failure.level = 0;
            }
        }
        result
    }

    async fn rollback(self) -> Result<(), DbErr> {
        let levels = self.shared.levels.clone().lock_owned().await;
        let mut levels = self.on_top(levels)?;
        if self.level == 0 {
            return Err(refused("its owner rolls it back"));
        }
        let level = levels.pop().expect("it is on top");
        let shared = Arc::clone(&self.shared);
        let rolled_back = task::spawn(async move {
            let result = level.txn.rollback().await;
            match &result {
                Ok(()) => shared.heal(levels.len()),
                Err(error) => {
                    *shared.failure() = Some(Failure { level: 0, cause: error.clone() });
                }
            }
            drop(levels);
            result
        });
        joined(rolled_back.await)
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Txn").field("level", &self.level).finish_non_exhaustive()
    }
}

// ===== impl Shared =====

impl Shared {
    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rolls back the nested transactions that have no handle any more.
    fn end_abandoned(&self, levels: &mut Vec<Level>) {
        let abandoned = |level: &Level| level.alive.strong_count() == 0;
        if let Some(first) = levels.iter().position(abandoned) {
            end(levels, first);
            self.heal(first);
        }
    }

    /// Forgets what went wrong in `level` and above it: it is rolled back.
    fn heal(&self, level: usize) {
        self.failure().take_if(|failure| failure.level >= level);
    }
}

// ===== impl Armed =====

impl Armed<'_> {
    fn disarm<V>(mut self, result: Result<V, DbErr>) -> Result<V, DbErr> {
        self.armed = false;
        if let Err(error) = &result {
            self.txn.fail(error.clone());
        }
        result
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.txn.fail(dropped());
        }
    }
}

/// Rolls back all levels from `first` on. `SQLx` sends a rollback by drop before
/// the next statement; the innermost has to go first.
fn end(levels: &mut Vec<Level>, first: usize) {
    while levels.len() > first {
        levels.pop();
    }
}

pub(super) fn joined<V>(result: Result<Result<V, DbErr>, JoinError>) -> Result<V, DbErr> {
    result.unwrap_or_else(|error| Err(refused(&error.to_string())))
}

fn refused(why: &str) -> DbErr {
    DbErr::Custom(format!("the transaction takes no statement: {why}"))
}

/// As a lost connection: trying again may help.
fn dropped() -> DbErr {
    DbErr::Conn(RuntimeErr::Internal("a statement was dropped while it ran".to_owned()))
}
