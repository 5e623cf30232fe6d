//! What all handles on a transaction share, and what fails it.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};

use sea_orm::{DatabaseTransaction, DbErr, RuntimeErr};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Txn;
use crate::{Namespace, dialect::Dialect};

pub(super) struct Shared {
    dialect: Dialect,
    namespace: Namespace,
    // Held for as long as a statement runs. Empty once the transaction has ended.
    levels: Arc<Mutex<Vec<Level>>>,
    failure: StdMutex<Option<Failure>>,
}

/// The transaction itself, or a savepoint in it.
pub(super) struct Level {
    pub(super) txn: DatabaseTransaction,
    alive: Weak<()>,
}

/// The first thing that went wrong, and in which level.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) level: usize,
    pub(super) cause: DbErr,
}

/// Fails the transaction unless it is disarmed: a future that is dropped while
/// a statement runs leaves nobody who knows what became of it.
pub(super) struct Armed<'a> {
    txn: &'a Txn,
    armed: bool,
}

// ===== impl Shared =====

impl Shared {
    pub(super) fn new(
        dialect: Dialect,
        namespace: Namespace,
        txn: DatabaseTransaction,
        alive: &Arc<()>,
    ) -> Self {
        let levels = Arc::new(Mutex::new(vec![Level::new(txn, alive)]));
        Self { dialect, namespace, levels, failure: StdMutex::default() }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(super) fn levels(&self) -> Arc<Mutex<Vec<Level>>> {
        Arc::clone(&self.levels)
    }

    /// Waits until no statement runs, and rolls back the nested transactions
    /// that have no handle any more.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<Vec<Level>> {
        let mut levels = self.levels().lock_owned().await;
        let abandoned = |level: &Level| level.alive.strong_count() == 0;
        if let Some(first) = levels.iter().position(abandoned) {
            end(&mut levels, first);
            self.heal(first);
        }
        levels
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure_mut().clone()
    }

    pub(super) fn failure_mut(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what went wrong in `level` and above it: it is rolled back.
    pub(super) fn heal(&self, level: usize) {
        self.failure_mut().take_if(|failure| failure.level >= level);
    }

    fn fail(&self, level: usize, cause: DbErr) {
        self.failure_mut().get_or_insert(Failure { level, cause });
    }
}

// ===== impl Level =====

impl Level {
    pub(super) fn new(txn: DatabaseTransaction, alive: &Arc<()>) -> Self {
        Self { txn, alive: Arc::downgrade(alive) }
    }

    /// Whether it is the level that a handle with this token was made for.
    pub(super) fn is_of(&self, alive: &Arc<()>) -> bool {
        std::ptr::eq(self.alive.as_ptr(), Arc::as_ptr(alive))
    }
}

// ===== impl Armed =====

impl<'a> Armed<'a> {
    pub(super) fn new(txn: &'a Txn) -> Self {
        Self { txn, armed: true }
    }

    pub(super) fn disarm<V>(mut self, result: Result<V, DbErr>) -> Result<V, DbErr> {
        self.armed = false;
        if let Err(error) = &result {
            self.txn.shared.fail(self.txn.level, error.clone());
        }
        result
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.txn.shared.fail(self.txn.level, dropped());
        }
    }
}

/// Rolls back all levels from `first` on. `SQLx` sends a rollback by drop before
/// the next statement; the innermost has to go first.
pub(super) fn end(levels: &mut Vec<Level>, first: usize) {
    while levels.len() > first {
        levels.pop();
    }
}

/// As a lost connection: trying again may help.
fn dropped() -> DbErr {
    DbErr::Conn(RuntimeErr::Internal("a statement was dropped while it ran".to_owned()))
}
