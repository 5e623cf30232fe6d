//! Forgetting, and what is never forgotten with it.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sea_orm::{ActiveValue::Set, ConnectionTrait as _, EntityTrait as _, TransactionTrait as _};
use tidegate_core::{
    Batch, Class, Delivery, Epoch, Identified, Lease, LeaseOwner, MessageId,
    Outcome::{self, Applied, Duplicate, TooOld},
    Record, Terms, TopicId, TopicPartition,
};
use tidegate_inbox::{Inbox, InboxLayer, InboxService, Pruned, Retention, TopicChanged};
use tidegate_sql::{DbErr, EffectService, LeaseEnded, Txn, effect_fn};
use tokio::{task::JoinSet, time::timeout};
use tower::{Layer as _, ServiceExt as _};

use crate::common::{TestDatabase, ledger};

struct Transfer {
    id: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        MessageId::from(u128::from(self.id.unsigned_abs()))
    }
}

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    let row = ledger::ActiveModel {
        account: Set("a".to_owned()),
        revision: Set(transfer.id),
        amount: Set(1),
        ..Default::default()
    };
    ledger::Entity::insert(row).exec(txn).await.map(drop)
}

/// A lease that starts at an acknowledged offset, on a topic with an id.
fn lease_at(start: i64, topic: Option<&str>) -> (LeaseOwner, Lease) {
    let terms =
        Terms { acknowledged: Some(start), topic_id: topic.map(TopicId::new), ..Terms::default() };
    Lease::grant_on(TopicPartition::new("topic", 0), Epoch::new(1, "member"), terms)
}

/// Delivers records whose messages have their offsets as ids.
async fn send(inbox: &Inbox, lease: &Lease, offsets: &[i64]) -> Vec<Outcome> {
    send_through(stack(inbox), lease, offsets).await
}

fn stack(inbox: &Inbox) -> InboxService<EffectService<Transfer>> {
    InboxLayer::new(inbox.clone()).layer(effect_fn(apply))
}

async fn send_through(
    stack: InboxService<EffectService<Transfer>>,
    lease: &Lease,
    offsets: &[i64],
) -> Vec<Outcome> {
    let delivery = |offset: i64| {
        let record = Record::new(lease.partition().clone(), offset, "1");
        Arc::new(Delivery::new(lease.clone(), record).with_value(Transfer { id: offset }))
    };
    let batch = Batch::new(offsets.iter().copied().map(delivery).collect());
    let outcomes = stack.oneshot(batch.expect("it is not empty")).await;
    outcomes.expect("nothing fails").into_iter().collect()
}

fn range(offsets: std::ops::Range<i64>) -> Vec<i64> {
    offsets.collect()
}

async fn source(test: &TestDatabase) -> (i64, i64) {
    let low = test.value("SELECT low FROM tidegate_source").await;
    (low, test.value("SELECT floor FROM tidegate_source").await)
}

fn pruned(removed: u64, floor: i64) -> (u64, Option<i64>) {
    (removed, Some(floor))
}

fn parts(pruned: Pruned) -> (u64, Option<i64>) {
    (pruned.removed, pruned.floor)
}

// N2.
#[tokio::test]
async fn what_is_forgotten_is_too_old_and_runs_no_more() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        assert!(send(&inbox, &lease, &range(0..100)).await.iter().all(|it| *it == Applied));
        owner.acknowledge(60);
        let done = inbox.prune(&lease, &Retention::of_offsets(0)).await.unwrap();
        assert_eq!(parts(done), pruned(60, 60), "never above what the broker acknowledged");
        assert_eq!(test.count("tidegate_inbox").await, 40);

        let (_owner, rewound) = lease_at(50, None);
        let outcomes = send(&inbox, &rewound, &[50, 59, 60, 99, 100]).await;
        assert_eq!(outcomes, [TooOld, TooOld, Duplicate, Duplicate, Applied]);
        assert_eq!(send(&inbox, &rewound, &[51, 52]).await, [TooOld, TooOld]);
        assert_eq!(test.count("ledger").await, 101);
    }
}

#[tokio::test]
async fn without_an_acknowledged_offset_nothing_is_forgotten() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (_owner, lease) = common::lease();
        let _ = send(&inbox, &lease, &[0, 1]).await;
        let done = inbox.prune(&lease, &Retention::of_offsets(0)).await.unwrap();
        assert_eq!(done, Pruned::default());
        let unknown = TopicPartition::new("other", 0);
        let done = inbox.prune_below(&unknown, 10, &Retention::of_offsets(0)).await.unwrap();
        assert_eq!(done, Pruned::default());
        let done = inbox.prune_below(lease.partition(), 1, &Retention::of_offsets(0)).await;
        assert_eq!(parts(done.unwrap()), pruned(1, 1));
    }
}

#[tokio::test]
async fn a_number_of_offsets_is_remembered() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..50)).await;
        owner.acknowledge(50);
        let retention = Retention::of_offsets(20).with_step(7);
        assert_eq!(parts(inbox.prune(&lease, &retention).await.unwrap()), pruned(30, 30));
        assert_eq!(parts(inbox.prune(&lease, &retention).await.unwrap()), pruned(0, 30));
        let more = Retention::of_offsets(60);
        assert_eq!(parts(inbox.prune(&lease, &more).await.unwrap()), pruned(0, 30));
    }
}

#[tokio::test]
async fn a_prefix_is_forgotten_up_to_the_first_that_is_young() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..50)).await;
        owner.acknowledge(50);
        let hour = Duration::from_secs(3600);
        let retention = Retention::of_age(hour).with_step(8);
        assert_eq!(parts(inbox.prune(&lease, &retention).await.unwrap()), pruned(0, 0));
        // 20 was applied late; those behind it are old, and stay.
        let old = if test.is_postgres() { "now() - interval '2 hours'" } else { "at - 7200000" };
        test.execute(&format!("UPDATE tidegate_inbox SET at = {old} WHERE record_offset <> 20"))
            .await;
        let kept = retention.or_offsets(45);
        assert_eq!(parts(inbox.prune(&lease, &kept).await.unwrap()), pruned(5, 5));
        assert_eq!(parts(inbox.prune(&lease, &retention).await.unwrap()), pruned(15, 20));
        assert_eq!(send(&inbox, &lease, &[19, 20, 21]).await, [TooOld, Duplicate, Duplicate]);
    }
}

#[tokio::test]
async fn a_log_with_gaps_is_forgotten_in_few_steps() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        let sparse: Vec<_> = (0..60).map(|n| n * 1_000_000).collect();
        let _ = send(&inbox, &lease, &sparse).await;
        let _ = send(&inbox, &lease, &range(60_000_000..60_000_100)).await;
        owner.acknowledge(60_000_100);
        let retention = Retention::of_offsets(0).with_step(10);
        let done = timeout(Duration::from_secs(30), inbox.prune(&lease, &retention)).await;
        let done = done.expect("a step grows where there is little").unwrap();
        assert_eq!(parts(done), pruned(160, 60_000_100));
    }
}

#[tokio::test]
async fn pruning_ends_with_the_lease_and_keeps_what_it_did() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..10)).await;
        owner.acknowledge(10);
        owner.lose();
        let error = inbox.prune(&lease, &Retention::of_offsets(0)).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert!(error.downcast_ref::<LeaseEnded>().is_some());
        assert_eq!(test.count("tidegate_inbox").await, 10);
    }
}

#[tokio::test]
async fn a_jump_forwards_begins_a_new_range() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let all = Retention::of_offsets(0);
        let (owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..100)).await;
        owner.acknowledge(90);
        inbox.prune(&lease, &all).await.unwrap();
        assert_eq!(source(&test).await, (0, 90));

        // Taken up where it was left, which is no jump: 90 to 99 were delivered.
        let (owner, lease) = lease_at(100, None);
        let _ = send(&inbox, &lease, &range(100..110)).await;
        owner.acknowledge(110);
        inbox.prune(&lease, &all).await.unwrap();
        assert_eq!(source(&test).await, (0, 110));

        // Set forwards by hand: 110 to 999 were never delivered.
        let (owner, lease) = lease_at(1_000, None);
        let _ = send(&inbox, &lease, &range(1_000..1_010)).await;
        assert_eq!(send(&inbox, &lease, &[50]).await, [TooOld], "until the floor passes it");
        owner.acknowledge(1_005);
        inbox.prune(&lease, &all).await.unwrap();
        assert_eq!(source(&test).await, (1_000, 1_005));

        // Set back to what was skipped: it is applied.
        let (_owner, lease) = lease_at(500, None);
        let outcomes = send(&inbox, &lease, &[500, 999, 1_000, 1_004, 1_005]).await;
        assert_eq!(outcomes, [Applied, Applied, TooOld, TooOld, Duplicate]);
    }
}

#[tokio::test]
async fn a_topic_made_anew_stops_the_partition_until_it_is_accepted() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, first) = lease_at(0, Some("one"));
        let _ = send(&inbox, &first, &range(0..10)).await;
        owner.acknowledge(10);
        inbox.prune(&first, &Retention::of_offsets(0)).await.unwrap();

        let (_owner, anew) = lease_at(0, Some("two"));
        let stack = InboxLayer::new(inbox.clone()).layer(effect_fn(apply));
        let record = Record::new(anew.partition().clone(), 3, "1");
        let delivery = Delivery::new(anew.clone(), record).with_value(Transfer { id: 77 });
        let error = stack.oneshot(Batch::of_one(delivery)).await.unwrap_err();
        assert_eq!(error.class(), Class::Fatal);
        let changed: &TopicChanged = error.downcast_ref().unwrap();
        assert_eq!((changed.known.as_str(), changed.found.as_str()), ("one", "two"));
        assert!(changed.to_string().contains("namespace"), "it says the way out");

        inbox.accept_topic(anew.partition(), TopicId::new("two")).await.unwrap();
        assert_eq!(send(&inbox, &anew, &[77]).await, [Applied]);
        assert_eq!(source(&test).await, (0, 0), "nothing of it is forgotten yet");
    }
}

#[tokio::test]
async fn a_topic_id_that_becomes_known_is_noted() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (_owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &[0]).await;
        let (_owner, lease) = lease_at(1, Some("one"));
        let _ = send(&inbox, &lease, &[1]).await;
        let known: String = test.value("SELECT topic_id FROM tidegate_source").await;
        assert_eq!(known, "one");
    }
}

// A claim that waited for a pruner must see what it wrote, though its statement
// began before.
#[tokio::test]
async fn a_claim_that_waits_for_a_pruner_sees_the_new_floor() {
    // At first nothing is expected; after a streak, nothing but news, which is
    // wrong of the second claim and right of the third.
    for (news, claimed, outcomes) in [
        (0, [3, 5], [TooOld, Duplicate]),
        (16, [3, 5], [TooOld, Duplicate]),
        (16, [3, 50], [TooOld, Applied]),
    ] {
        let Some(test) = TestDatabase::postgres().await else { return };
        let inbox = Inbox::new(test.database.clone());
        let (_owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..10)).await;
        let stack = stack(&inbox);
        for offset in 10..10 + news {
            assert_eq!(send_through(stack.clone(), &lease, &[offset]).await, [Applied]);
        }
        let pruner = test.connection().begin().await.unwrap();
        for sql in [
            "SELECT pg_advisory_xact_lock(1953064037, source) FROM tidegate_source",
            "UPDATE tidegate_source SET floor = 5",
            "DELETE FROM tidegate_inbox WHERE record_offset < 5",
        ] {
            pruner.execute_unprepared(sql).await.unwrap();
        }
        let claim = tokio::spawn(async move { send_through(stack, &lease, &claimed).await });
        test.until_blocked("tidegate_inbox").await;
        pruner.commit().await.unwrap();
        assert_eq!(claim.await.unwrap(), outcomes);
        let applied = outcomes.iter().filter(|it| **it == Applied).count();
        assert_eq!(test.count("ledger").await, 10 + news + i64::try_from(applied).unwrap());
    }
}

// With a lock of the row alone, those who share it let each other in before the
// pruner, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pruner_is_not_kept_waiting_by_those_who_come_after_it() {
    for test in TestDatabase::each().await {
        let inbox = Inbox::new(test.database.clone());
        let (owner, lease) = lease_at(0, None);
        let _ = send(&inbox, &lease, &range(0..100)).await;
        owner.acknowledge(100);
        let stop = Arc::new(AtomicBool::new(false));
        let mut lanes = JoinSet::new();
        for lane in 1..=6 {
            let (inbox, lease, stop) = (inbox.clone(), lease.clone(), Arc::clone(&stop));
            lanes.spawn(async move {
                let mut offset = lane * 1_000_000;
                while !stop.load(Ordering::Relaxed) {
                    let _ = send(&inbox, &lease, &range(offset..offset + 20)).await;
                    offset += 20;
                }
                offset - lane * 1_000_000
            });
        }
        let retention = Retention::of_offsets(0).with_step(10);
        let done = timeout(Duration::from_secs(20), inbox.prune(&lease, &retention)).await;
        stop.store(true, Ordering::Relaxed);
        assert_eq!(parts(done.expect("its turn comes").unwrap()), pruned(100, 100));
        while let Some(lane) = lanes.join_next().await {
            assert!(lane.unwrap() > 0);
        }
    }
}
