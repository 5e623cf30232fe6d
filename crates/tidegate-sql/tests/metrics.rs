//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

mod common;

use std::collections::HashMap;

use metrics_util::{
    CompositeKey, MetricKind,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use tidegate_core::{Batch, Class, DeadLetters as _, Delivery, Error, Record};
use tidegate_sql::{Database, DeadLetterTable, EpochGuardLayer, InTransaction, Txn, effect_fn};
use tokio::time::Instant;
use tower::{Layer as _, Service as _, ServiceExt};

use crate::common::TestDatabase;

type Request = InTransaction<Batch<Delivery<()>>>;

/// A database whose handles belong to a recorder of its own.
async fn recorded(test: &TestDatabase) -> (Database, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // Handles are resolved when a database is opened, on this thread.
    let guard = metrics::set_default_local_recorder(&recorder);
    let database = Database::open(test.options.clone()).await.expect("it opens");
    drop(guard);
    (database, snapshotter)
}

/// Counters by name and label, and of histograms how much they hold, with what
/// is said about them.
fn recording(snapshotter: &Snapshotter) -> HashMap<String, u64> {
    let entry = |(key, unit, description, value): (CompositeKey, Option<_>, Option<_>, _)| {
        let (kind, key) = key.into_parts();
        assert!(description.is_some(), "{key:?} is described");
        assert_eq!(unit.is_some(), kind == MetricKind::Histogram, "{key:?} has its unit");
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let count = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => unreachable!("there is no gauge"),
        };
        (format!("{}{}", key.name(), labels.collect::<String>()), count)
    };
    snapshotter.snapshot().into_vec().into_iter().map(entry).collect()
}

#[tokio::test]
async fn what_happens_is_counted_once() {
    for test in TestDatabase::each().await {
        let (database, snapshotter) = recorded(&test).await;
        database.begin().await.unwrap().commit().await.unwrap();
        drop(database.begin().await.unwrap());

        let (owner, lease) = common::lease();
        let letters = DeadLetterTable::new(database.clone());
        let record = Record::new(lease.partition().clone(), 1, "");
        for _ in 0..2 {
            letters.bury(&lease, &record, &Error::new(Class::Poison, "no")).await.unwrap();
        }

        let nothing = async |_: &Txn, (): &()| -> Result<(), Error> { Ok(()) };
        let mut guard = EpochGuardLayer::new(database.clone(), "group", lease.clone())
            .layer(effect_fn(nothing));
        let mut ready = tokio_test::task::spawn(ServiceExt::<Request>::ready(&mut guard));
        while ready.poll().is_pending() {
            owner.prove(Instant::now());
            tokio::task::yield_now().await;
        }
        drop(ready);
        test.execute("UPDATE tidegate_owner SET generation = 9").await;
        let transaction = database.begin().await.unwrap();
        let delivery = Delivery::new(lease, record);
        let request = InTransaction::new(transaction.txn(), Batch::of_one(delivery));
        guard.call(request).await.unwrap_err();
        drop(transaction);

        let recording = recording(&snapshotter);
        for (name, count) in [
            ("tidegate_sql_begin_seconds", 6),
            ("tidegate_sql_transaction_seconds", 6),
            ("tidegate_sql_transactions_total ending=committed", 4),
            ("tidegate_sql_transactions_total ending=rolled_back", 2),
            ("tidegate_sql_transactions_total ending=failed", 0),
            ("tidegate_sql_transactions_total ending=unknown", 0),
            ("tidegate_sql_buried_total", 1),
            ("tidegate_sql_guard_claims_total result=written", 1),
            ("tidegate_sql_guard_claims_total result=foreign", 0),
            ("tidegate_sql_guard_claims_total result=failed", 0),
            ("tidegate_sql_guard_refusals_total", 1),
        ] {
            assert_eq!(recording.get(name), Some(&count), "{name}");
        }
        assert_eq!(recording.len(), 11);
    }
}
