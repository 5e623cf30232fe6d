//! The dead letters that are kept in a table.

mod common;

use std::collections::BTreeSet;

use tidegate_core::{Class, DeadLetters as _, Error, Header, Record, TopicPartition};
use tidegate_sql::{DeadLetterTable, LeaseEnded};

use crate::common::TestDatabase;

#[derive(Debug, thiserror::Error)]
#[error("no account 7")]
struct NoAccount;

fn poison() -> Error {
    Error::new(Class::Poison, NoAccount)
}

fn record(offset: i64) -> Record {
    Record::new(TopicPartition::new("topic", 0), offset, format!("payload {offset}"))
}

#[tokio::test]
async fn a_letter_is_the_whole_record_with_the_chain_of_causes() {
    for test in TestDatabase::each().await {
        let letters = DeadLetterTable::new(test.database.clone());
        let (_owner, lease) = common::lease();
        let headers = [Header::new("h", "1"), Header { name: "empty".into(), value: None }];
        let whole = Record { timestamp: 5, ..record(3) }.with_key("").with_headers(headers);
        let tombstone = Record { payload: None, ..record(4) };
        for record in [&whole, &tombstone] {
            letters.bury(&lease, record, &poison()).await.unwrap();
        }
        let stored = letters.list(lease.partition(), 0, 10).await.unwrap();
        let records: Vec<_> = stored.iter().map(|it| it.record.clone()).collect();
        assert_eq!(records, [whole, tombstone]);
        assert_eq!((&*stored[0].class, stored[0].id), ("poison", None));
        assert_eq!(stored[0].cause, "a record can never be applied: no account 7");
        assert!(stored[0].since > 1_700_000_000_000);
    }
}

#[tokio::test]
async fn burying_twice_is_burying_once() {
    for test in TestDatabase::each().await {
        let letters = DeadLetterTable::new(test.database.clone());
        let (_owner, lease) = common::lease();
        letters.bury(&lease, &record(3), &poison()).await.unwrap();
        letters.bury(&lease, &record(3), &Error::new(Class::Fatal, "later")).await.unwrap();
        let stored = letters.list(lease.partition(), 0, 10).await.unwrap();
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].class, "poison", "the first one stays");
    }
}

#[tokio::test]
async fn nothing_is_buried_without_the_lease() {
    for test in TestDatabase::each().await {
        let letters = DeadLetterTable::new(test.database.clone());
        let (owner, lease) = common::lease();
        owner.drain();
        letters.bury(&lease, &record(1), &poison()).await.unwrap();
        owner.lose();
        let error = letters.bury(&lease, &record(2), &poison()).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert!(error.downcast_ref::<LeaseEnded>().is_some());
        assert_eq!(test.count("tidegate_dead_letter").await, 1);
    }
}

#[tokio::test]
async fn a_new_lease_is_told_what_is_buried_until_it_is_asked_for_again() {
    for test in TestDatabase::each().await {
        let letters = DeadLetterTable::new(test.database.clone());
        let (_owner, lease) = common::lease();
        let elsewhere = Record { partition: TopicPartition::new("topic", 1), ..record(9) };
        for record in [record(3), record(5), record(7), elsewhere] {
            letters.bury(&lease, &record, &poison()).await.unwrap();
        }
        let buried = async |from| letters.buried(lease.partition(), from).await.unwrap();
        assert_eq!(buried(4).await, BTreeSet::from([5, 7]));
        assert!(letters.retry(lease.partition(), 5).await.unwrap());
        assert!(!letters.retry(lease.partition(), 5).await.unwrap());
        assert_eq!(buried(0).await, BTreeSet::from([3, 7]));
        let page = letters.list(lease.partition(), 4, 1).await.unwrap();
        assert_eq!(page.iter().map(|it| it.record.offset).collect::<Vec<_>>(), [7]);
    }
}

#[tokio::test]
async fn a_rebuild_tries_every_record_again() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let letters = DeadLetterTable::new(test.database.clone());
        letters.bury(&lease, &record(3), &poison()).await.unwrap();
        let rebuilt = test.database.in_namespace("main", 2).await.unwrap();
        let letters = DeadLetterTable::new(rebuilt);
        assert_eq!(letters.buried(lease.partition(), 0).await.unwrap(), BTreeSet::new());
    }
}
