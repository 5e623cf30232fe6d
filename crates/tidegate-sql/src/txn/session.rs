//! What makes SeaORM take a [`Txn`] for a connection.

use std::{fmt, pin::Pin, sync::Arc};

use sea_orm::{
    AccessMode, ConnectionTrait, DbBackend, DbErr, ExecResult, IsolationLevel, QueryResult,
    Statement, TransactionError, TransactionOptions, TransactionSession, TransactionTrait,
};
use tokio::task;

use super::{
    Txn,
    guard::{Armed, Failure, Level},
    joined, refused,
};

#[async_trait::async_trait]
impl ConnectionTrait for Txn {
    fn get_database_backend(&self) -> DbBackend {
        self.dialect().backend()
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
        // Both databases answer with the rows that a statement wrote.
        true
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
        let guard = Armed::new(self);
        let alive = Arc::default();
        let handle = Arc::clone(&alive);
        // Cancelled halfway, a SAVEPOINT makes SQLx roll back all there is and
        // go on without a transaction. So it is not cancelled.
        let begun = task::spawn(async move {
            let txn = levels[levels.len() - 1].txn.begin_with_options(options).await?;
            levels.push(Level::new(txn, &handle));
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
        let guard = Armed::new(&self);
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
            if let Some(failure) = &mut *self.shared.failure_mut() {
                failure.level = 0;
            }
        }
        result
    }

    async fn rollback(self) -> Result<(), DbErr> {
        let levels = self.shared.lock().await;
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
                    *shared.failure_mut() = Some(Failure { level: 0, cause: error.clone() });
                }
            }
            drop(levels);
            result
        });
        joined(rolled_back.await)
    }
}
