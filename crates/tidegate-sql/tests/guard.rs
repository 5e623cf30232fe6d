//! The epoch guard: each order in which owners and stale owners can meet.

mod common;

use std::{sync::Arc, task::Poll};

use sea_orm::ConnectionTrait as _;
use tidegate_core::{
    Batch, Class, Delivery, Epoch, Error, Lease, LeaseOwner, Outcome, Outcomes, Record, Terms,
    TopicPartition,
};
use tidegate_sql::{
    DbErr, EffectError, EffectService, EpochGuardLayer, EpochGuardService, GuardError,
    InTransaction, LeaseEnded, Txn, effect_fn,
};
use tidegate_testkit::Strict;
use tokio::{
    task::yield_now,
    time::{Duration, Instant, timeout},
};
use tokio_test::task;
use tower::{Layer as _, Service as _, ServiceExt};
use tower_test::mock;

use crate::common::TestDatabase;

async fn apply(txn: &Txn, member: &String) -> Result<(), DbErr> {
    let sql = format!("INSERT INTO ledger (account, revision, amount) VALUES ('{member}', 1, 1)");
    txn.execute_unprepared(&sql).await.map(drop)
}

type Request = InTransaction<Batch<Delivery<String>>>;
type Guard = EpochGuardService<EffectService<String>>;

fn readiness(guard: &mut Guard) -> tower::util::Ready<'_, Guard, Request> {
    guard.ready()
}

/// A member of the group, with a lease on the partition.
struct Member {
    name: String,
    owner: LeaseOwner,
    guard: Guard,
    test: Arc<TestDatabase>,
}

impl Member {
    fn new(test: &Arc<TestDatabase>, generation: i32, name: &str) -> Self {
        Self::on(test, 0, "group", generation, name)
    }

    fn on(
        test: &Arc<TestDatabase>,
        partition: i32,
        group: &str,
        generation: i32,
        name: &str,
    ) -> Self {
        let partition = TopicPartition::new("topic", partition);
        let terms = Terms { session: Some(Duration::from_secs(600)), ..Terms::default() };
        let (owner, lease) = Lease::grant_on(partition, Epoch::new(generation, name), terms);
        let guard = EpochGuardLayer::new(test.database.clone(), group, lease);
        let guard = guard.layer(effect_fn(apply));
        Self { name: name.to_owned(), owner, guard, test: Arc::clone(test) }
    }

    /// A commit that is sent now is accepted.
    fn prove(&self) {
        assert!(self.owner.prove(Instant::now()));
    }

    /// Waits until the guard asks for a proof, and is not ready without.
    async fn asks(&mut self) {
        let mut ready = task::spawn(readiness(&mut self.guard));
        let asked = async {
            while !self.owner.proof_demanded() {
                assert!(ready.poll().is_pending(), "ready without a proof");
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), asked).await.expect("it asks for a proof");
        assert!(ready.poll().is_pending(), "ready without a proof");
    }

    /// Waits until the guard is ready.
    async fn ready(&mut self) {
        let ready = timeout(Duration::from_secs(10), readiness(&mut self.guard)).await;
        ready.expect("it is ready").expect("readiness does not fail");
    }

    /// Claims the partition, while each proof that is asked for is given.
    async fn claim(&mut self) {
        let Self { owner, guard, .. } = self;
        let mut ready = task::spawn(readiness(guard));
        let proven = async {
            while ready.poll().is_pending() {
                if owner.proof_demanded() {
                    assert!(owner.prove(Instant::now()));
                }
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), proven).await.expect("it is ready");
    }

    fn request(&self, txn: Txn) -> Request {
        let lease = self.owner.lease();
        let record = Record::new(lease.partition().clone(), 0, "");
        let delivery = Delivery::new(lease.clone(), record).with_value(self.name.clone());
        InTransaction::new(txn, Batch::of_one(delivery))
    }

    /// Writes, in a transaction that is committed if it may be.
    async fn write(&mut self) -> Result<Outcomes, Error> {
        self.ready().await;
        self.write_readied().await
    }

    /// Writes with a readiness that it was given before.
    async fn write_readied(&mut self) -> Result<Outcomes, Error> {
        let owner = self.test.database.begin().await.map_err(EffectError::from)?;
        let request = self.request(owner.txn());
        let outcomes = self.guard.call(request).await?;
        owner.commit().await.map_err(EffectError::from)?;
        Ok(outcomes)
    }
}

fn taken(owner: (i32, &str), claimed: (i32, &str)) -> GuardError {
    let epoch = |(generation, member)| Epoch::new(generation, member);
    GuardError::Taken { owner: epoch(owner), claimed: epoch(claimed) }
}

#[track_caller]
fn assert_taken(result: Result<Outcomes, Error>, owner: (i32, &str), claimed: (i32, &str)) {
    let error = result.expect_err("the partition is taken");
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(error.downcast_ref(), Some(&taken(owner, claimed)));
}

async fn row(test: &TestDatabase) -> (i64, i32, String) {
    let incarnation = test.value("SELECT incarnation FROM tidegate_owner").await;
    let generation = test.value("SELECT generation FROM tidegate_owner").await;
    (incarnation, generation, test.value("SELECT member FROM tidegate_owner").await)
}

fn is(incarnation: i64, generation: i32, member: &str) -> (i64, i32, String) {
    (incarnation, generation, member.to_owned())
}

async fn each() -> Vec<Arc<TestDatabase>> {
    TestDatabase::each().await.into_iter().map(Arc::new).collect()
}

#[tokio::test]
async fn a_claim_counts_after_a_proof_that_was_sent_after_it() {
    for test in each().await {
        let before = Instant::now();
        let mut member = Member::new(&test, 1, "a");
        member.asks().await;
        assert_eq!(row(&test).await, is(1, 1, "a"));
        // One that was sent before the claim says nothing about it.
        member.owner.prove(before);
        let mut ready = task::spawn(readiness(&mut member.guard));
        assert!(ready.poll().is_pending());
        member.owner.prove(Instant::now());
        drop(ready);
        member.ready().await;
        assert_eq!(member.write().await.unwrap(), Outcomes::all(Outcome::Applied, 1));
        assert_eq!(member.write().await.unwrap(), Outcomes::all(Outcome::Applied, 1));
        assert_eq!(test.count("ledger").await, 2);
    }
}

#[tokio::test]
async fn a_proof_wakes_who_waits_for_it() {
    for test in each().await {
        let mut member = Member::new(&test, 1, "a");
        member.asks().await;
        let Member { owner, guard, .. } = &mut member;
        let mut ready = task::spawn(readiness(guard));
        assert!(ready.poll().is_pending());
        owner.prove(Instant::now());
        let woken = async {
            while !ready.is_woken() {
                yield_now().await;
            }
        };
        // Sooner than it looks at the clock by itself.
        timeout(Duration::from_millis(500), woken).await.expect("the proof wakes it");
        assert!(ready.poll().is_ready());
    }
}

#[tokio::test]
async fn a_higher_generation_takes_over_and_the_old_owner_writes_no_more() {
    for test in each().await {
        let mut old = Member::new(&test, 1, "a");
        old.claim().await;
        let mut new = Member::new(&test, 2, "b");
        new.claim().await;
        assert_eq!(row(&test).await, is(1, 2, "b"));

        assert_taken(old.write().await, (2, "b"), (1, "a"));
        assert!(old.owner.proof_demanded(), "it wants to know");
        // No proof comes, and in the end the lease is over.
        let mut ready = task::spawn(readiness(&mut old.guard));
        assert!(ready.poll().is_pending());
        drop(ready);
        old.owner.lose();
        let error = old.write().await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert!(error.downcast_ref::<LeaseEnded>().is_some());

        assert_eq!(new.write().await.unwrap(), Outcomes::all(Outcome::Applied, 1));
        assert_eq!(test.count("ledger").await, 1);
    }
}

#[tokio::test]
async fn a_stale_owner_that_claims_late_is_not_let_in() {
    for test in each().await {
        let mut new = Member::new(&test, 6, "b");
        new.claim().await;
        let mut stale = Member::new(&test, 5, "a");
        stale.asks().await;
        assert_eq!(row(&test).await, is(1, 6, "b"));
        assert!(new.write().await.is_ok());
    }
}

#[tokio::test]
async fn a_stale_owner_that_claims_first_never_counts() {
    for test in each().await {
        let mut stale = Member::new(&test, 5, "a");
        stale.asks().await;
        assert_eq!(row(&test).await, is(1, 5, "a"));
        let mut new = Member::new(&test, 6, "b");
        new.claim().await;
        assert!(new.write().await.is_ok());
        let mut ready = task::spawn(readiness(&mut stale.guard));
        assert!(ready.poll().is_pending(), "its commits are refused");
    }
}

// A static member that was restarted has its old generation and a new id.
#[tokio::test]
async fn the_true_owner_claims_again_after_a_late_claim_of_its_generation() {
    for test in each().await {
        let mut old = Member::new(&test, 5, "old");
        old.claim().await;
        let mut new = Member::new(&test, 5, "new");
        new.claim().await;
        assert!(new.write().await.is_ok());
        assert_taken(old.write().await, (5, "new"), (5, "old"));

        let mut late = Member::new(&test, 5, "old");
        late.asks().await;
        assert_eq!(row(&test).await, is(1, 5, "old"));
        assert_taken(new.write().await, (5, "old"), (5, "new"));
        new.prove();
        // It claims again, and that wants a proof of its own.
        new.claim().await;
        assert_eq!(row(&test).await, is(1, 5, "new"));
        assert!(new.write().await.is_ok());
    }
}

#[tokio::test]
async fn the_group_whose_generations_began_again_is_not_locked_out() {
    for test in each().await {
        let mut former = Member::new(&test, 40, "former");
        former.claim().await;
        let mut owner = Member::new(&test, 1, "a");
        // Only a commit that was sent after the row was read says so.
        owner.asks().await;
        assert_eq!(row(&test).await, is(1, 40, "former"));
        owner.prove();
        owner.claim().await;
        assert_eq!(row(&test).await, is(2, 1, "a"));
        assert!(owner.write().await.is_ok());
        assert_taken(former.write().await, (1, "a"), (40, "former"));

        // In this life of the group, generations count as ever.
        let mut next = Member::new(&test, 2, "b");
        next.claim().await;
        assert_eq!(row(&test).await, is(2, 2, "b"));
        assert_taken(owner.write().await, (2, "b"), (1, "a"));
    }
}

#[tokio::test]
async fn a_zombie_of_a_former_life_of_the_group_is_overruled() {
    for test in each().await {
        let mut owner = Member::new(&test, 1, "a");
        owner.claim().await;
        let mut zombie = Member::new(&test, 40, "former");
        zombie.asks().await;
        assert_eq!(row(&test).await, is(1, 40, "former"));
        assert_taken(owner.write().await, (40, "former"), (1, "a"));
        owner.prove();
        owner.claim().await;
        assert_eq!(row(&test).await, is(2, 1, "a"));
        assert!(owner.write().await.is_ok());
    }
}

#[tokio::test]
async fn a_takeover_waits_for_the_transaction_that_was_let_through() {
    let Some(test) = TestDatabase::postgres().await.map(Arc::new) else { return };
    let mut old = Member::new(&test, 1, "a");
    old.claim().await;
    old.ready().await;
    let owner = test.database.begin().await.unwrap();
    let request = old.request(owner.txn());
    let _ = old.guard.call(request).await.unwrap();

    let mut new = Member::new(&test, 2, "b");
    let claiming = tokio::spawn(async move {
        new.claim().await;
        new
    });
    test.until_blocked("tidegate_owner").await;
    owner.commit().await.unwrap();
    let mut new = claiming.await.unwrap();
    assert!(new.write().await.is_ok());
    assert_taken(old.write().await, (2, "b"), (1, "a"));
}

#[tokio::test]
async fn the_lanes_of_a_stack_share_a_claim() {
    for test in each().await {
        let mut member = Member::new(&test, 1, "a");
        let mut lane = member.guard.clone();
        let mut waiting = task::spawn(readiness(&mut lane));
        assert!(waiting.poll().is_pending());
        drop(waiting);
        member.claim().await;
        assert!(!member.owner.proof_demanded(), "asked for once");
        let ready = task::spawn(readiness(&mut lane)).poll();
        assert!(matches!(ready, Poll::Ready(Ok(_))), "at once");

        // What one of them is refused, the others hear.
        let mut other = Member::new(&test, 2, "b");
        other.claim().await;
        assert_taken(member.write_readied().await, (2, "b"), (1, "a"));
        let owner = test.database.begin().await.unwrap();
        let request = member.request(owner.txn());
        let error = lane.call(request).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&GuardError::Unclaimed));
        assert_eq!(error.class(), Class::Transient);
    }
}

#[tokio::test]
async fn a_lease_that_drains_finishes_what_was_let_through() {
    for test in each().await {
        let mut member = Member::new(&test, 1, "a");
        member.claim().await;
        let mut late = Member::on(&test, 1, "group", 1, "a");
        member.owner.drain();
        late.owner.drain();
        assert!(member.write().await.is_ok());
        // It claims nothing any more.
        let error = late.write().await.unwrap_err();
        assert!(error.downcast_ref::<LeaseEnded>().is_some());
    }
}

#[tokio::test]
async fn a_claim_that_fails_is_tried_again() {
    for test in each().await {
        test.execute("ALTER TABLE tidegate_owner RENAME TO elsewhere").await;
        let mut member = Member::new(&test, 1, "a");
        let mut ready = task::spawn(readiness(&mut member.guard));
        for _ in 0..100 {
            assert!(ready.poll().is_pending(), "it is no error of readiness");
            yield_now().await;
        }
        drop(ready);
        test.execute("ALTER TABLE elsewhere RENAME TO tidegate_owner").await;
        member.claim().await;
        assert!(member.write().await.is_ok());
    }
}

#[tokio::test]
async fn groups_and_partitions_are_guarded_apart() {
    for test in each().await {
        let mut one = Member::on(&test, 0, "group", 1, "a");
        let mut other_partition = Member::on(&test, 1, "group", 2, "b");
        let mut other_group = Member::on(&test, 0, "other", 3, "c");
        for member in [&mut one, &mut other_partition, &mut other_group] {
            member.claim().await;
        }
        for member in [&mut one, &mut other_partition, &mut other_group] {
            assert!(member.write().await.is_ok());
        }
        assert_eq!(test.count("tidegate_owner").await, 3);
    }
}

#[tokio::test]
async fn a_row_that_is_gone_is_claimed_again() {
    for test in each().await {
        let mut member = Member::new(&test, 1, "a");
        member.claim().await;
        test.execute("DELETE FROM tidegate_owner").await;
        let error = member.write().await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&GuardError::Unclaimed));
        member.claim().await;
        assert!(member.write().await.is_ok());
    }
}

// ===== what it owes to Tower =====

#[tokio::test]
async fn the_readied_inner_service_is_the_one_called() {
    let test = Arc::new(TestDatabase::sqlite().await);
    let member = Member::new(&test, 1, "a");
    let lease = member.owner.lease().clone();
    let guard = EpochGuardLayer::new(test.database.clone(), "group", lease);
    let mut guard = guard.layer(Strict::new(effect_fn(apply)));
    for _ in 0..2 {
        let mut ready = task::spawn(ServiceExt::<Request>::ready(&mut guard));
        while ready.poll().is_pending() {
            member.prove();
            yield_now().await;
        }
        drop(ready);
        let owner = test.database.begin().await.unwrap();
        let _ = guard.call(member.request(owner.txn())).await.unwrap();
    }
}

#[tokio::test]
async fn readiness_is_that_of_the_inner_service_too() {
    let test = Arc::new(TestDatabase::sqlite().await);
    let member = Member::new(&test, 1, "a");
    // A lease that is not active has nothing to claim.
    member.owner.drain();
    let lease = member.owner.lease().clone();
    let layer = EpochGuardLayer::new(test.database.clone(), "group", lease);
    let (mut guard, mut handle) = mock::spawn_layer::<Request, Outcomes, _>(layer);
    handle.allow(0);
    assert!(guard.poll_ready::<Request>().is_pending());
    handle.allow(1);
    assert!(guard.is_woken());
    assert!(guard.poll_ready::<Request>().is_ready());
}
