//! What a stack leaves behind that is dropped at any place.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use std::{sync::Arc, time::Duration};

use sea_orm::{
    ActiveValue::Set, ConnectionTrait as _, EntityTrait as _, Statement, TransactionSession as _,
    TransactionTrait as _,
};
use tidegate_core::{
    Batch, BoxError, Delivery, Identified, Lease, MessageId, Outcome, Record, Sequenced,
};
use tidegate_inbox::{Inbox, InboxLayer, InboxService};
use tidegate_sequencer::{Sequencer, SequencerLayer, SequencerService};
use tidegate_sql::{DbErr, EffectService, Txn, effect_fn};
use tokio::{task::yield_now, time::timeout};
use tower::{Layer as _, ServiceExt as _};

use crate::common::{TestDatabase, ledger, poll_at_most};

const BATCH: i64 = 5;

#[derive(Clone, Debug)]
struct Transfer {
    account: String,
    revision: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        MessageId::of(format!("{}/{}", self.account, self.revision).as_bytes())
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

fn decode(record: &Record) -> Result<Transfer, BoxError> {
    let text = str::from_utf8(record.payload.as_deref().unwrap_or_default())?;
    let (account, revision) = text.split_once(' ').ok_or("an account and a revision")?;
    Ok(Transfer { account: account.to_owned(), revision: revision.parse()? })
}

/// An entity, a savepoint, and a statement by hand; each a place to be dropped at.
async fn apply(txn: &Txn, Transfer { account, revision }: &Transfer) -> Result<(), DbErr> {
    let row = ledger::ActiveModel {
        account: Set(account.clone()),
        revision: Set(*revision),
        amount: Set(1),
        ..Default::default()
    };
    let nested = txn.begin().await?;
    ledger::Entity::insert(row).exec(&nested).await?;
    nested.commit().await?;
    yield_now().await;
    let sql = "UPDATE ledger SET amount = amount + 1 WHERE account = $1 AND revision = $2";
    let values = [account.as_str().into(), (*revision).into()];
    txn.execute_raw(Statement::from_sql_and_values(txn.get_database_backend(), sql, values))
        .await
        .map(drop)
}

type Stack = InboxService<SequencerService<EffectService<Transfer>, Transfer>>;

fn stack(test: &TestDatabase) -> Stack {
    let inner = SequencerLayer::new(Sequencer::parking(decode)).layer(effect_fn(apply));
    InboxLayer::new(Inbox::new(test.database.clone())).layer(inner)
}

/// The records of five offsets. Within three batches, each of three accounts
/// has a gap that a later one closes.
fn batch(lease: &Lease, first: i64) -> Batch<Delivery<Transfer>> {
    let delivery = |offset: i64| {
        let (account, revision) = (offset % 3, offset / 3 + 1);
        // Revisions 2 and 3, 5 and 6, .. come in the other order.
        let revision = match revision % 3 {
            2 => revision + 1,
            0 => revision - 1,
            _ => revision,
        };
        let transfer = Transfer { account: account.to_string(), revision };
        let payload = format!("{account} {revision}");
        let record = Record::new(lease.partition().clone(), offset, payload);
        Arc::new(Delivery::new(lease.clone(), record).with_value(transfer))
    };
    Batch::new((first..first + BATCH).map(delivery).collect()).expect("it is not empty")
}

/// No transaction is open, and nobody holds a lock.
async fn assert_idle(test: &TestDatabase) {
    let write = async {
        while test.connection().execute_unprepared("DELETE FROM ledger").await.is_err() {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), write).await.expect("nobody holds a lock");
}

/// Each revision once, in order, with its whole effect.
async fn assert_whole(test: &TestDatabase, records: i64) {
    let rows = test.ledger().await;
    assert_eq!(i64::try_from(rows.len()), Ok(records));
    assert!(rows.iter().all(|row| row.amount == 2), "the whole effect");
    for account in ["0", "1", "2"] {
        let of_account = rows.iter().filter(|row| row.account == account);
        let revisions: Vec<_> = of_account.map(|row| row.revision).collect();
        let expected: Vec<_> = (1..=i64::try_from(revisions.len()).unwrap_or(0)).collect();
        assert_eq!(revisions, expected);
    }
    assert_eq!(test.count("tidegate_parked").await, 0);
}

/// Markers are there for all that is applied or parked, and for nothing else.
async fn assert_consistent(test: &TestDatabase) {
    // In one statement, so that a commit on its way is seen whole.
    let difference: i64 = test
        .value(
            "SELECT (SELECT count(*) FROM tidegate_inbox) - (SELECT count(*) FROM ledger)
                - (SELECT count(*) FROM tidegate_parked)",
        )
        .await;
    assert_eq!(difference, 0, "marker, revision and effect are in one transaction");
}

// X1, I8: dropped after each number of polls until it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_batch_is_all_or_none() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let mut drops = 0;
        let mut first = 0;
        // Nine batches close every gap.
        while drops < 300 || first % (9 * BATCH) > 0 {
            for polls in 0.. {
                let call = stack.clone().oneshot(batch(&lease, first));
                // In a task of its own, as a lane runs it; the drop comes between
                // polls.
                let done = tokio::spawn(poll_at_most(polls, call)).await.unwrap();
                assert_consistent(&test).await;
                match done {
                    None => drops += 1,
                    Some(outcomes) => {
                        let outcomes: Vec<_> = outcomes.unwrap().into_iter().collect();
                        let again = outcomes.contains(&Outcome::Duplicate);
                        assert!(outcomes.iter().all(|it| (*it == Outcome::Duplicate) == again));
                        break;
                    }
                }
            }
            first += BATCH;
        }
        assert_whole(&test, first).await;
        assert_idle(&test).await;
    }
}

// X3: as the last test, but the task is ended at any time, also while it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_batch_is_all_or_none() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let mut first = 0;
        let mut ended = 0;
        let mut patience = 0_u32;
        while ended < 200 || first % (9 * BATCH) > 0 {
            let task = tokio::spawn(stack.clone().oneshot(batch(&lease, first)));
            patience = (patience + 7) % 61;
            for _ in 0..patience {
                yield_now().await;
            }
            // Many are ended early, and each third runs to its end.
            if ended < 200 && !patience.is_multiple_of(3) {
                task.abort();
            }
            match task.await {
                Err(_) => ended += 1,
                Ok(outcomes) => {
                    let _ = outcomes.unwrap();
                    first += BATCH;
                }
            }
            assert_consistent(&test).await;
        }
        assert_whole(&test, first).await;
        assert_idle(&test).await;
    }
}

#[tokio::test]
async fn an_effect_that_panics_leaves_nothing_behind() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let clumsy = async |txn: &Txn, transfer: &Transfer| -> Result<(), DbErr> {
            apply(txn, transfer).await?;
            let _open = txn.begin().await?;
            panic!("oh no");
        };
        let inner = SequencerLayer::new(Sequencer::parking(decode)).layer(effect_fn(clumsy));
        let stack = InboxLayer::new(Inbox::new(test.database.clone())).layer(inner);
        let panicked = tokio::spawn(stack.oneshot(batch(&lease, 0))).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(test.count("tidegate_inbox").await, 0);
        assert_eq!(test.count("tidegate_entity").await, 0);
        assert_idle(&test).await;
    }
}
