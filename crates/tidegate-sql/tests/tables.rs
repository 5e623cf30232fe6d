//! The statements that every batch runs, at their edges.

mod common;

use sea_orm::{ConnectionTrait as _, DbErr, QueryResult, Statement};
use tidegate_core::{Fingerprint, MessageId, Record, TopicPartition};
use tidegate_sql::{
    Txn,
    tables::{
        Mark,
        entities::{self, Run, Standing},
        markers::{self, Claim, Marker, Pruned},
        parked::{self, Parking},
    },
};

use crate::common::TestDatabase;

fn mark(n: u8) -> Mark {
    Mark { id: MessageId::of(&[n]), fingerprint: Fingerprint::of(&[n]) }
}

/// Does something in a transaction that is committed.
async fn commit<V>(test: &TestDatabase, work: impl AsyncFnOnce(&Txn) -> Result<V, DbErr>) -> V {
    let owner = test.database.begin().await.expect("the database is there");
    let value = work(&owner.txn()).await.expect("the statement is right");
    owner.commit().await.expect("it can be committed");
    value
}

#[tokio::test]
async fn a_run_advances_from_where_it_may_and_from_nowhere_else() {
    for test in TestDatabase::each().await {
        let run = |entity: &'static [u8], from, to, last, n| Run {
            entity,
            from,
            to,
            last,
            mark: mark(n),
        };
        let first = [run(b"", 0, 0, 3, 1), run(b"\xff", 1, 0, 9, 2), run(b"a", 7, 7, 8, 3)];
        let mut first = first.to_vec();
        first.sort_by_key(|run| run.entity);
        let standings = commit(&test, async |txn| entities::stand(txn, 0, &first).await).await;
        let fresh = Some(Standing { revision: 0, held: 0, last: None });
        assert_eq!(standings, [None, fresh, fresh]);
        // A transaction that advances nothing leaves nothing behind.
        let again = commit(&test, async |txn| entities::stand(txn, 0, &first).await).await;
        let third = Some(Standing { revision: 3, held: 0, last: Some(mark(1)) });
        assert_eq!(again, [third, fresh, fresh]);

        // Between two revisions, and from as far as numbers go.
        let wide = [run(b"", i64::MIN, 3, i64::MAX, 4), run(b"a", 0, 5, 6, 5)];
        let standings = commit(&test, async |txn| entities::stand(txn, 0, &wide).await).await;
        assert_eq!(standings, [None, None]);
        let wide = [run(b"", 1, 0, 0, 9), run(b"a", 1, 0, 0, 9), run(b"n", i64::MIN, 0, 1, 9)];
        let standings =
            commit(&test, async |txn| entities::stand(txn, i64::MIN, &wide).await).await;
        let at = |revision, n| Some(Standing { revision, held: 0, last: Some(mark(n)) });
        assert_eq!(standings, [at(i64::MAX, 4), at(6, 5), None]);
    }
}

#[tokio::test]
async fn an_entity_with_parked_deltas_does_not_advance_by_itself() {
    for test in TestDatabase::each().await {
        let run = [Run { entity: b"a", from: 0, to: 0, last: 1, mark: mark(1) }];
        let locked = [Run { from: 1, to: 0, ..run[0] }];
        let held = Standing { revision: 0, held: 2, last: None };
        commit(&test, async |txn| {
            entities::stand(txn, 0, &locked).await?;
            entities::settle(txn, &[(b"a", &held)]).await
        })
        .await;
        let standings = commit(&test, async |txn| entities::stand(txn, 0, &run).await).await;
        assert_eq!(standings, [Some(held)]);
        let standing = commit(&test, async |txn| entities::lock(txn, b"a").await).await;
        assert_eq!(standing, Some(held));
        assert_eq!(commit(&test, async |txn| entities::lock(txn, b"b").await).await, None);
    }
}

// Who waits for an entity meets it where the other one left it, which a
// statement that had begun before does not see.
#[tokio::test]
async fn an_entity_that_was_waited_for_stands_where_it_was_left() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let run = |from, last| [Run { entity: b"a", from, to: from, last, mark: mark(1) }];
    let left = Some(Standing { revision: 3, held: 0, last: Some(mark(1)) });
    for (before, after, met) in [(0, 3, left), (3, 4, None)] {
        let owner = test.database.begin().await.expect("the database is there");
        let first = entities::stand(&owner.txn(), 0, &run(0, 3)).await;
        first.expect("the statement is right");
        let second = commit(&test, async |txn| entities::stand(txn, 0, &run(before, after)).await);
        let first = async {
            test.until_blocked("tidegate_entity").await;
            owner.commit().await.expect("it can be committed");
        };
        let (standings, ()) = tokio::join!(second, first);
        assert_eq!(standings, [met]);
        test.execute("DELETE FROM tidegate_entity").await;
    }
}

#[tokio::test]
async fn an_entity_that_is_not_written_is_an_error() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let owner = test.database.begin().await.expect("the database is there");
    let standing = Standing { revision: 1, held: 0, last: None };
    let settled = entities::settle(&owner.txn(), &[(b"a", &standing)]).await;
    assert_eq!(settled, Err(DbErr::RecordNotUpdated));
}

#[tokio::test]
async fn a_batch_may_be_large() {
    for test in TestDatabase::each().await {
        let partition = TopicPartition::new("topic", 0);
        let names: Vec<_> = (0..5_000).map(|n| format!("entity {n:05}")).collect();
        let runs: Vec<_> = names
            .iter()
            .map(|name| Run { entity: name.as_bytes(), from: 0, to: 0, last: 1, mark: mark(1) })
            .collect();
        let markers: Vec<_> = (0..5_000_u32)
            .map(|n| Marker {
                mark: Mark { id: MessageId::from(u128::from(n)), ..mark(0) },
                offset: n.into(),
            })
            .collect();
        let markers: Vec<_> = markers.iter().collect();
        for again in [false, true] {
            let (claim, standings) = commit(&test, async |txn| {
                markers::enter(txn, &partition, None, 0).await?;
                let claim = markers::claim(txn, &partition, &markers).await?;
                Ok((claim, entities::stand(txn, 0, &runs).await?))
            })
            .await;
            let before = claim.expect("the partition is known").before;
            assert_eq!(before.len(), if again { 5_000 } else { 0 });
            assert!(standings.iter().all(|it| it.is_some() == again));
        }
    }
}

/// PostgreSQL fails where SQLite answers.
#[tokio::test]
async fn what_is_expected_to_be_new_is_claimed_or_known_not_to_be() {
    for test in TestDatabase::each().await {
        let partition = TopicPartition::new("topic", 0);
        let marker = |n: u8| Marker { mark: mark(n), offset: n.into() };
        let (first, second) = (marker(1), marker(2));
        commit(&test, async |txn| markers::enter(txn, &partition, None, 1).await).await;
        let claim = commit(&test, async |txn| markers::claim_new(txn, &partition, &[&first]).await);
        let pruned = Pruned { low: 1, floor: 1 };
        assert_eq!(claim.await, Some(Claim { pruned, topic_id: None, before: Vec::new() }));
        let owner = test.database.begin().await.expect("the database is there");
        match markers::claim_new(&owner.txn(), &partition, &[&first, &second]).await {
            Ok(claim) => {
                assert!(!test.is_postgres());
                assert_eq!(claim.expect("the partition is known").before, [first.mark]);
            }
            Err(error) => {
                assert!(markers::is_repeat(&error), "{error}");
                assert!(owner.commit().await.is_err());
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_partition_claims_nothing() {
    for test in TestDatabase::each().await {
        let partition = TopicPartition::new("topic", 7);
        let marker = Marker { mark: mark(1), offset: 3 };
        let claim = async || {
            commit(&test, async |txn| markers::claim(txn, &partition, &[&marker]).await).await
        };
        assert_eq!(claim().await, None);
        assert_eq!(test.count("tidegate_inbox").await, 0);
        commit(&test, async |txn| markers::enter(txn, &partition, None, 3).await).await;
        // Made known again, it is as it was.
        commit(&test, async |txn| markers::enter(txn, &partition, None, 9).await).await;
        let claimed = claim().await.expect("it is known");
        assert_eq!(claimed.pruned, Pruned { low: 3, floor: 3 });
        assert_eq!(claimed.before, []);
        let again = claim().await.expect("it is known");
        assert_eq!(again.before, [marker.mark]);
    }
}

/// Planning the statement takes longer than claiming a record.
#[tokio::test]
async fn small_claims_are_not_planned_each_time() {
    for test in TestDatabase::each().await.into_iter().filter(TestDatabase::is_postgres) {
        let partition = TopicPartition::new("topic", 0);
        let plans = commit(&test, async |txn| {
            markers::enter(txn, &partition, None, 0).await?;
            // PostgreSQL plans the first five for their values.
            for n in 0..20 {
                let marker = Marker { mark: mark(n), offset: n.into() };
                match n % 2 {
                    0 => markers::claim(txn, &partition, &[&marker]).await?,
                    _ => markers::claim_new(txn, &partition, &[&marker]).await?,
                };
            }
            let sql = "SELECT custom_plans, generic_plans FROM pg_prepared_statements
                WHERE statement LIKE 'WITH gate %'";
            let statement = Statement::from_string(txn.get_database_backend(), sql);
            let plans = |row: QueryResult| {
                Ok::<(i64, i64), DbErr>((row.try_get_by_index(0)?, row.try_get_by_index(1)?))
            };
            txn.query_all_raw(statement)
                .await?
                .into_iter()
                .map(plans)
                .collect::<Result<Vec<_>, _>>()
        })
        .await;
        assert_eq!(plans, [(5, 5); 2]);
    }
}

#[tokio::test]
async fn what_is_parked_is_taken_as_it_was_and_once() {
    for test in TestDatabase::each().await {
        let plain = Record::new(TopicPartition::new("a topic", 3), 5, "");
        let bare = Record { payload: None, offset: 6, ..plain.clone() };
        let keyed = Record { timestamp: i64::MAX, offset: i64::MAX, ..plain.clone() };
        let keyed = keyed.with_key(vec![0, 255, 1]);
        let rows = [
            Parking::new(b"a", 2, mark(1), &plain),
            Parking::new(b"", i64::MAX, mark(2), &bare),
            Parking::new(b"\0", 3, mark(3), &keyed),
        ];
        commit(&test, async |txn| parked::park(txn, &rows).await).await;
        let entities: [&[u8]; 3] = [b"", b"\0", b"b"];
        let mut keys = commit(&test, async |txn| parked::keys(txn, &entities).await).await;
        keys.sort_by_key(|key| key.revision);
        let keys: Vec<_> = keys.iter().map(|key| (key.revision, key.mark, key.withheld)).collect();
        assert_eq!(keys, [(3, mark(3), false), (i64::MAX, mark(2), false)]);
        let places: [(&[u8], i64); 4] = [(b"a", 2), (b"", i64::MAX), (b"\0", 3), (b"a", 9)];
        let mut taken = commit(&test, async |txn| parked::take(txn, &places).await).await;
        taken.sort_by_key(|it| it.record.offset);
        let records: Vec<_> = taken.into_iter().map(|it| it.record).collect();
        assert_eq!(records, [plain, bare, keyed]);
        let again = commit(&test, async |txn| parked::take(txn, &places).await).await;
        assert_eq!(again, []);
    }
}
