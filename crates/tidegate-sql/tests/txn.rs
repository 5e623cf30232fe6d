//! What a guarded transaction refuses, and what it leaves behind.
//!
//! The traps of SeaORM and `SQLx` are named in comments, with what they would do
//! to an effect that is not guarded.

mod common;

use std::{pin::Pin, sync::Mutex, time::Duration};

use sea_orm::{
    ActiveModelTrait as _, ActiveValue::Set, ColumnTrait as _, ConnectionTrait as _, DbBackend,
    EntityTrait as _, IntoActiveModel as _, PaginatorTrait as _, QueryFilter as _,
    QuerySelect as _, Statement, TransactionError, TransactionSession as _, TransactionTrait as _,
};
use tidegate_core::{Batch, Class, Delivery, Error, Outcome, Outcomes, Record};
use tidegate_sql::{
    Database, DbErr, EffectError, EffectService, InTransaction, Txn, effect_batch_fn, effect_fn,
};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::common::{REFUSED, TestDatabase, ledger, poll_at_most};

async fn insert(txn: &Txn, revision: i64, amount: i64) -> Result<(), DbErr> {
    let row = ledger::ActiveModel {
        account: Set("a".to_owned()),
        revision: Set(revision),
        amount: Set(amount),
        ..Default::default()
    };
    ledger::Entity::insert(row).exec(txn).await.map(drop)
}

/// No transaction is open: another one can write, and is seen at once.
async fn assert_idle(test: &TestDatabase) {
    if test.is_postgres() {
        let open = async || -> i64 {
            test.value(
                "SELECT count(*) FROM pg_locks WHERE relation = 'ledger'::regclass AND pid <> pg_backend_pid()",
            )
            .await
        };
        let ended = async {
            while open().await > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(5), ended).await.expect("every transaction ends");
    }
    let write = test.execute("DELETE FROM ledger");
    timeout(Duration::from_secs(5), write).await.expect("nobody holds a lock");
}

// T8: `commit()` would answer `Ok`, with nothing committed.
#[tokio::test]
async fn a_swallowed_error_is_not_committed() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let txn = owner.txn();
        insert(&txn, 1, 1).await.unwrap();
        let _ = insert(&txn, 2, REFUSED).await;
        assert!(insert(&txn, 3, 1).await.unwrap_err().to_string().contains("failed before"));
        owner.commit().await.unwrap_err();
        assert_eq!(test.ledger().await, []);
    }
}

#[tokio::test]
async fn an_error_in_a_savepoint_is_undone_with_it() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let txn = owner.txn();
        insert(&txn, 1, 1).await.unwrap();
        let rolled_back = txn.begin().await.unwrap();
        assert!(insert(&txn, 9, 1).await.unwrap_err().to_string().contains("nested"));
        let _ = insert(&rolled_back, 2, REFUSED).await;
        rolled_back.rollback().await.unwrap();
        let dropped = txn.begin().await.unwrap();
        insert(&dropped, 3, 1).await.unwrap();
        let inner = dropped.begin().await.unwrap();
        insert(&inner, 4, 1).await.unwrap();
        let _ = insert(&inner, 5, REFUSED).await;
        drop(dropped);
        drop(inner);
        let kept = txn.begin().await.unwrap();
        insert(&kept, 6, 1).await.unwrap();
        kept.commit().await.unwrap();
        owner.commit().await.unwrap();
        let revisions: Vec<_> = test.ledger().await.iter().map(|row| row.revision).collect();
        assert_eq!(revisions, [1, 6]);
    }
}

#[tokio::test]
async fn nested_work_is_kept_or_undone_by_its_result() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let txn = owner.txn();
        let kept = txn.nested(async |nested| insert(nested, 1, 1).await).await;
        kept.unwrap();
        let undone = txn
            .nested(async |nested| {
                insert(nested, 2, 1).await?;
                insert(nested, 3, REFUSED).await
            })
            .await;
        undone.unwrap_err();
        let failed = txn
            .transaction::<_, (), DbErr>(|nested| {
                Box::pin(async move { insert(nested, 4, REFUSED).await })
            })
            .await;
        assert!(matches!(failed, Err(TransactionError::Transaction(_))), "{failed:?}");
        owner.commit().await.unwrap();
        assert_eq!(test.ledger().await.len(), 1);
    }
}

// T5: `commit()` would release the savepoint, answer `Ok`, and roll all back later.
#[tokio::test]
async fn a_nested_transaction_left_open_is_not_committed() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let nested = owner.txn().begin().await.unwrap();
        insert(&nested, 1, 1).await.unwrap();
        owner.commit().await.unwrap_err();
        assert!(insert(&nested, 2, 1).await.unwrap_err().to_string().contains("ended"));
        assert_eq!(test.ledger().await, []);
    }
}

// T7: dropping it would panic while the nested one runs a statement.
#[tokio::test]
async fn a_transaction_is_dropped_while_a_nested_one_runs() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let nested = owner.txn().begin().await.unwrap();
        let busy = tokio::spawn(async move {
            while insert(&nested, 1, 1).await.is_ok() {}
            nested
        });
        tokio::task::yield_now().await;
        drop(owner);
        let _nested = timeout(Duration::from_secs(5), busy).await.expect("it is refused").unwrap();
        assert_idle(&test).await;
    }
}

// T6: a clone in the background would keep the transaction from ending.
#[tokio::test]
async fn a_handle_that_is_kept_does_not_keep_the_transaction() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let txn = owner.txn();
        let (sent, mut running) = tokio::sync::mpsc::channel(1);
        let busy = tokio::spawn(async move {
            while insert(&txn, 1, 1).await.is_ok() {
                let _ = sent.try_send(());
            }
            txn
        });
        running.recv().await.unwrap();
        drop(owner);
        let _kept = timeout(Duration::from_secs(5), busy).await.expect("it is refused").unwrap();
        assert_eq!(test.ledger().await, []);
        assert_idle(&test).await;
    }
}

#[tokio::test]
async fn only_the_owner_commits() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        let txn = owner.txn();
        insert(&txn, 1, 1).await.unwrap();
        txn.clone().commit().await.unwrap_err();
        txn.clone().rollback().await.unwrap_err();
        owner.commit().await.unwrap();
        assert!(insert(&txn, 2, 1).await.unwrap_err().to_string().contains("ended"));
        assert_eq!(test.ledger().await.len(), 1);
    }
}

// T4: later statements would run without a transaction, and `commit()` say `Ok`.
#[tokio::test]
async fn a_dropped_statement_or_savepoint_fails_the_transaction() {
    for test in TestDatabase::each().await {
        for polls in 1..4 {
            let owner = test.database.begin().await.unwrap();
            if poll_at_most(polls, owner.txn().begin()).await.is_none() {
                insert(&owner.txn(), 1, 1).await.unwrap_err();
                owner.commit().await.unwrap_err();
            }
        }
        for polls in 1..4 {
            let owner = test.database.begin().await.unwrap();
            if poll_at_most(polls, insert(&owner.txn(), 1, 1)).await.is_none() {
                owner.commit().await.unwrap_err();
            }
        }
        for polls in 1..4 {
            let owner = test.database.begin().await.unwrap();
            let nested = owner.txn().begin().await.unwrap();
            if poll_at_most(polls, nested.commit()).await.is_none() {
                insert(&owner.txn(), 1, 1).await.unwrap_err();
                owner.commit().await.unwrap_err();
            }
        }
        assert_eq!(test.ledger().await, []);
        assert_idle(&test).await;
    }
}

// T2, X1: the next user of the connection would write in a transaction that
// nobody commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_begin_leaves_no_transaction_in_the_pool() {
    for test in TestDatabase::each().await {
        let mut options = test.options.clone();
        options.max_connections = 4;
        let database = Database::open(options).await.unwrap();
        let mut dropped = 0;
        for n in 0..1_000 {
            let begun = poll_at_most(1 + n % 3, database.begin()).await;
            dropped += u32::from(begun.is_none());
        }
        assert!(dropped > 100, "{dropped}");
        // Each connection is used, and what it writes is seen by all others.
        let insert = "INSERT INTO ledger (account, revision, amount) VALUES ('a', 1, 1)";
        for n in 1..=20 {
            database.connection().execute_unprepared(insert).await.unwrap();
            let seen: i64 = test.count("ledger").await;
            assert_eq!(seen, n);
        }
        if test.is_postgres() {
            let mut owners = Vec::new();
            for _ in 0..4 {
                let begun = timeout(Duration::from_secs(5), database.begin()).await;
                owners.push(begun.expect("the pool is full").unwrap());
            }
        }
    }
}

// T3: dropped during `COMMIT`, it is committed or not; a half never is.
#[tokio::test]
async fn a_dropped_commit_goes_on() {
    for test in TestDatabase::each().await {
        for revision in 0..20 {
            let owner = test.database.begin().await.unwrap();
            insert(&owner.txn(), revision, 1).await.unwrap();
            // The one thread runs the task of the commit when this has been dropped.
            assert!(poll_at_most(1, owner.commit()).await.is_none());
            let committed = async {
                while test.count("ledger").await <= revision {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(5), committed).await.expect("nothing cancels it");
        }
    }
}

// X3: the connection goes back to the pool, with nothing open on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_ended_leaves_nothing_open() {
    for test in TestDatabase::each().await {
        for n in 0..50 {
            let database = test.database.clone();
            let task = tokio::spawn(async move {
                let owner = database.begin().await?;
                for revision in 0.. {
                    insert(&owner.txn(), revision, 1).await?;
                }
                owner.commit().await
            });
            for _ in 0..n * 3 {
                tokio::task::yield_now().await;
            }
            task.abort();
            let _ = task.await;
        }
        assert_eq!(test.ledger().await, []);
        assert_idle(&test).await;
    }
}

#[tokio::test]
async fn work_that_panics_leaves_nothing_behind() {
    for test in TestDatabase::each().await {
        let database = test.database.clone();
        let panicked = tokio::spawn(async move {
            let owner = database.begin().await.unwrap();
            let nested = owner.txn().begin().await.unwrap();
            insert(&nested, 1, 1).await.unwrap();
            panic!("oh no");
        });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(test.ledger().await, []);
        assert_idle(&test).await;
    }
}

// N1: classes come from codes, whatever language the server speaks.
#[tokio::test]
async fn errors_of_the_database_have_a_class() {
    for test in TestDatabase::each().await {
        for (sql, class) in [
            (
                "INSERT INTO ledger (account, revision, amount) VALUES ('a', 1, 9999999)",
                Class::Poison,
            ),
            ("INSERT INTO ledger (account, revision, amount) VALUES (NULL, 1, 1)", Class::Poison),
            (
                "INSERT INTO ledger (id, account, revision, amount) VALUES (1, 'a', 1, 1), (1, 'a', 1, 1)",
                Class::Poison,
            ),
            ("INSERT INTO legder (account) VALUES ('a')", Class::Fatal),
            ("INSERT INTO", Class::Fatal),
        ] {
            let error = test.connection().execute_unprepared(sql).await.unwrap_err();
            assert_eq!(EffectError::from(error).class(), class, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_wait_for_the_only_connection_ends() {
    let test = TestDatabase::sqlite().await;
    let mut options = test.options.clone();
    options.acquire_timeout = Duration::from_millis(50);
    let database = Database::open(options).await.unwrap();
    let _owner = database.begin().await.unwrap();
    let error = database.begin().await.unwrap_err();
    assert!(tidegate_sql::is_unreachable(&error), "{error}");
    assert_eq!(EffectError::from(error).class(), Class::Transient);
}

// ===== effects =====

struct Transfer {
    revision: i64,
    amount: i64,
}

async fn call(
    test: &TestDatabase,
    mut effect: EffectService<Transfer>,
    amounts: &[i64],
) -> Result<Outcomes, Error> {
    let (_owner, lease) = common::lease();
    let delivery = |(revision, amount): (i64, &i64)| {
        let record = Record::new(lease.partition().clone(), 10 + revision, "");
        let value = Transfer { revision, amount: *amount };
        Delivery::new(lease.clone(), record).with_value(value).into()
    };
    let batch =
        Batch::new((0..).zip(amounts).map(delivery).collect()).expect("a batch is not empty");
    let owner = test.database.begin().await.expect("the database is there");
    let outcomes = (&mut effect).oneshot(InTransaction::new(owner.txn(), batch)).await?;
    owner.commit().await.map_err(EffectError::from)?;
    Ok(outcomes)
}

#[tokio::test]
async fn an_effect_is_applied_to_each_delivery_in_order() {
    for test in TestDatabase::each().await {
        let apply = async |txn: &Txn, transfer: &Transfer| -> Result<(), DbErr> {
            insert(txn, transfer.revision, transfer.amount).await
        };
        let outcomes = call(&test, effect_fn(apply), &[1, 2, 3]).await.unwrap();
        assert_eq!(outcomes, Outcomes::all(Outcome::Applied, 3));
        let amounts: Vec<_> = test.ledger().await.iter().map(|row| row.amount).collect();
        assert_eq!(amounts, [1, 2, 3]);
    }
}

#[tokio::test]
async fn an_effect_that_fails_names_the_record() {
    for test in TestDatabase::each().await {
        let apply = async |txn: &Txn, transfer: &Transfer| -> Result<(), DbErr> {
            insert(txn, transfer.revision, transfer.amount).await
        };
        let error = call(&test, effect_fn(apply), &[1, REFUSED, 1]).await.unwrap_err();
        assert_eq!(error.class(), Class::Poison);
        assert_eq!(error.culprit().map(|it| it.offset), Some(11));
        assert_eq!(test.ledger().await, []);
    }
}

#[tokio::test]
async fn an_effect_that_swallows_an_error_is_blamed_for_it() {
    for test in TestDatabase::each().await {
        let careless = async |txn: &Txn, transfer: &Transfer| -> Result<(), DbErr> {
            let _ = insert(txn, transfer.revision, transfer.amount).await;
            Ok(())
        };
        let error = call(&test, effect_fn(careless), &[1, REFUSED, 1]).await.unwrap_err();
        assert_eq!(error.class(), Class::Poison);
        assert_eq!(error.culprit().map(|it| it.offset), Some(11));
        assert!(error.downcast_ref::<DbErr>().is_some());
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no such account")]
struct NoAccount;

#[tokio::test]
async fn a_failure_for_now_is_one_whatever_the_effect_takes_it_for() {
    for test in TestDatabase::each().await {
        let hasty = async |txn: &Txn, transfer: &Transfer| -> Result<(), EffectError> {
            // Until one is dropped while it runs, and not before: later ones are
            // refused then.
            while insert(txn, transfer.revision, 1).await.is_ok() {
                poll_at_most(1, insert(txn, transfer.revision, 1)).await;
            }
            Err(EffectError::poison(NoAccount))
        };
        let error = call(&test, effect_fn(hasty), &[1]).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
    }
}

#[tokio::test]
async fn an_effect_on_a_batch_may_name_the_value_at_fault() {
    for test in TestDatabase::each().await {
        let apply = async |txn: &Txn, transfers: &[&Transfer]| -> Result<(), EffectError> {
            for (index, transfer) in transfers.iter().enumerate() {
                if transfer.amount == REFUSED {
                    return Err(EffectError::poison(NoAccount).with_value(index));
                }
                insert(txn, transfer.revision, transfer.amount).await?;
            }
            Ok(())
        };
        let error = call(&test, effect_batch_fn(apply), &[1, 1, REFUSED]).await.unwrap_err();
        assert_eq!(error.culprit().map(|it| it.offset), Some(12));
        assert!(error.downcast_ref::<NoAccount>().is_some());
        let _ = call(&test, effect_batch_fn(apply), &[1, 1]).await.unwrap();
        let unnamed = async |txn: &Txn, transfers: &[&Transfer]| -> Result<(), DbErr> {
            insert(txn, 1, transfers[1].amount).await
        };
        let error = call(&test, effect_batch_fn(unnamed), &[1, REFUSED]).await.unwrap_err();
        assert_eq!((error.class(), error.culprit()), (Class::Poison, None));
    }
}

// ===== what SeaORM offers on a connection =====

async fn everything(txn: &Txn, account: &str) -> Result<(), DbErr> {
    use ledger::{Column, Entity};

    let first = insert_one(account, 1);
    let row = first.insert(txn).await?;
    let found = Entity::find().filter(Column::Account.eq(account)).one(txn).await?;
    assert_eq!(found, Some(row.clone()));
    let mut changed = row.into_active_model();
    changed.amount = Set(3);
    let row = changed.update(txn).await?;
    insert_one(account, 2).save(txn).await?;
    Entity::insert_many([insert_one(account, 3), insert_one(account, 4)]).exec(txn).await?;
    assert_eq!(Entity::find().paginate(txn, 3).num_pages().await?, 2);
    assert_eq!(Entity::find().count(txn).await?, 4);
    Entity::delete_many().filter(Column::Amount.gt(3)).exec(txn).await?;
    let amounts: Vec<i64> =
        Entity::find().select_only().column(Column::Amount).into_tuple().all(txn).await?;
    assert_eq!(amounts, [3, 2, 3]);
    row.into_active_model().delete(txn).await?;
    let sql = "UPDATE ledger SET amount = $1 WHERE account = $2";
    let values = [7.into(), account.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    assert_eq!(txn.execute_raw(statement).await?.rows_affected(), 2);
    Ok(())
}

fn insert_one(account: &str, amount: i64) -> ledger::ActiveModel {
    ledger::ActiveModel {
        account: Set(account.to_owned()),
        revision: Set(1),
        amount: Set(amount),
        ..Default::default()
    }
}

#[tokio::test]
async fn entities_and_raw_statements_work_in_a_transaction() {
    for test in TestDatabase::each().await {
        let owner = test.database.begin().await.unwrap();
        everything(&owner.txn(), "a").await.unwrap();
        owner.txn().nested(async |nested| insert(nested, 1, 7).await).await.unwrap();
        owner.commit().await.unwrap();
        assert_eq!(test.ledger().await.len(), 3);
        let backend = if test.is_postgres() { DbBackend::Postgres } else { DbBackend::Sqlite };
        assert_eq!(test.connection().get_database_backend(), backend);
    }
}

#[test]
fn what_is_handed_down_is_send_and_not_borrowed() {
    fn is_static<T: Send + Sync + 'static>() {}
    fn is_send<T: Send>(_: &T) {}
    is_static::<Txn>();
    is_static::<Pin<Box<Mutex<Txn>>>>();
    let check = |txn: &Txn| is_send(&everything(txn, "a"));
    let _ = check;
}
