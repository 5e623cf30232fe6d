//! The contract of the inbox, on each database.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use sea_orm::{ActiveValue::Set, EntityTrait as _};
use tidegate_core::{
    Batch, Class, Condition, Delivery, Epoch, Error, Header, Identified, Lease, LeaseOwner,
    MessageId,
    Outcome::{self, Applied, Duplicate, TooOld},
    Outcomes, Record, Terms, TopicPartition,
};
use tidegate_inbox::{Conflict, Inbox, InboxLayer, InboxService};
use tidegate_sql::{Database, DbErr, EffectService, InTransaction, LeaseEnded, Txn, effect_fn};
use tokio::{
    sync::{Barrier, Semaphore, mpsc},
    time::sleep,
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::common::{REFUSED, TestDatabase, ledger};

#[derive(Clone, Debug)]
struct Transfer {
    id: u128,
    amount: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        self.id.into()
    }
}

/// After so many batches of news, a stack expects more of them.
const STREAK: i64 = 16;

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    let row = ledger::ActiveModel {
        account: Set("a".to_owned()),
        revision: Set(i64::try_from(transfer.id).expect("ids are small")),
        amount: Set(transfer.amount),
        ..Default::default()
    };
    ledger::Entity::insert(row).exec(txn).await.map(drop)
}

type InTxn = InTransaction<Batch<Delivery<Transfer>>>;

fn layer(test: &TestDatabase) -> InboxLayer {
    InboxLayer::new(Inbox::new(test.database.clone()))
}

fn stack(test: &TestDatabase) -> InboxService<EffectService<Transfer>> {
    layer(test).layer(effect_fn(apply))
}

/// A delivery whose payload says the amount.
fn delivery(lease: &Lease, offset: i64, id: u128, amount: i64) -> Arc<Delivery<Transfer>> {
    let record = Record::new(lease.partition().clone(), offset, amount.to_string());
    Arc::new(Delivery::new(lease.clone(), record).with_value(Transfer { id, amount }))
}

/// Deliveries of an amount of 1, each of the message with its offset as id.
fn batch(lease: &Lease, offsets: &[i64]) -> Batch<Delivery<Transfer>> {
    let message = |offset: i64| delivery(lease, offset, offset.unsigned_abs().into(), 1);
    batch_of(offsets.iter().copied().map(message).collect())
}

fn batch_of(deliveries: Vec<Arc<Delivery<Transfer>>>) -> Batch<Delivery<Transfer>> {
    Batch::new(deliveries).expect("it is not empty")
}

async fn send<S>(stack: &S, batch: Batch<Delivery<Transfer>>) -> Result<Vec<Outcome>, Error>
where
    S: Service<Batch<Delivery<Transfer>>, Response = Outcomes, Error = Error> + Clone,
{
    Ok(stack.clone().oneshot(batch).await?.into_iter().collect())
}

/// Sends nothing but news for as long as it takes a stack to expect more of them.
async fn expect_news(stack: &InboxService<EffectService<Transfer>>, lease: &Lease, from: i64) {
    for offset in from..from + STREAK {
        let outcomes = send(stack, batch(lease, &[offset])).await.expect("nothing is wrong");
        assert_eq!(outcomes, [Applied]);
    }
}

async fn revisions(test: &TestDatabase) -> Vec<i64> {
    test.ledger().await.iter().map(|row| row.revision).collect()
}

/// Those below 100: what made a stack expect news lies above.
async fn low_revisions(test: &TestDatabase) -> Vec<i64> {
    let mut revisions = revisions(test).await;
    revisions.retain(|revision| *revision < 100);
    revisions
}

// N5: what was there before is an outcome, on each database, and no error.
#[tokio::test]
async fn a_message_has_its_effect_once() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        assert_eq!(send(&stack, batch(&lease, &[1, 2])).await.unwrap(), [Applied, Applied]);
        assert_eq!(
            send(&stack, batch(&lease, &[1, 3, 2])).await.unwrap(),
            [Duplicate, Applied, Duplicate]
        );
        assert_eq!(send(&stack, batch(&lease, &[3])).await.unwrap(), [Duplicate]);
        assert_eq!(revisions(&test).await, [1, 2, 3]);
        assert_eq!(test.count("tidegate_inbox").await, 3);
    }
}

#[tokio::test]
async fn a_message_twice_in_a_batch_has_its_effect_once() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let each = [(0, 9), (1, 5), (2, 9), (3, 5), (4, 9)];
        let each = each.map(|(offset, id)| delivery(&lease, offset, id, 1));
        let outcomes = send(&stack(&test), batch_of(each.to_vec())).await.unwrap();
        assert_eq!(outcomes, [Applied, Applied, Duplicate, Duplicate, Duplicate]);
        assert_eq!(revisions(&test).await, [9, 5]);
    }
}

#[tokio::test]
async fn another_payload_is_a_conflict_that_overwrites_nothing() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let _ = send(&stack, batch(&lease, &[1])).await.unwrap();
        let before: Vec<u8> = test.value("SELECT fp FROM tidegate_inbox").await;
        for conflicting in [
            [delivery(&lease, 7, 2, 1), delivery(&lease, 8, 1, 5)],
            [delivery(&lease, 7, 2, 1), delivery(&lease, 8, 2, 5)],
        ] {
            let error = send(&stack, batch_of(conflicting.to_vec())).await.unwrap_err();
            assert_eq!(error.class(), Class::Poison);
            assert_eq!(error.culprit().map(|it| it.offset), Some(8));
            assert!(error.downcast_ref::<Conflict>().is_some());
        }
        let after: Vec<u8> = test.value("SELECT fp FROM tidegate_inbox").await;
        assert_eq!(before, after);
        assert_eq!(revisions(&test).await, [1]);
    }
}

// What a stack expects is what it costs, and nothing else.
#[tokio::test]
async fn what_comes_unexpected_is_found_as_if_it_were_expected() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        expect_news(&stack, &lease, 100).await;
        let outcomes = send(&stack, batch(&lease, &[1, 100, 2])).await.unwrap();
        assert_eq!(outcomes, [Applied, Duplicate, Applied]);

        expect_news(&stack, &lease, 200).await;
        let twice = [delivery(&lease, 3, 3, 1), delivery(&lease, 4, 3, 1)];
        let outcomes = send(&stack, batch_of(twice.to_vec())).await.unwrap();
        assert_eq!(outcomes, [Applied, Duplicate]);

        expect_news(&stack, &lease, 300).await;
        let conflicting = [delivery(&lease, 5, 5, 1), delivery(&lease, 6, 1, 9)];
        let error = send(&stack, batch_of(conflicting.to_vec())).await.unwrap_err();
        assert_eq!(error.class(), Class::Poison);
        assert_eq!(error.culprit().map(|it| it.offset), Some(6));

        expect_news(&stack, &lease, 400).await;
        test.execute("UPDATE tidegate_source SET floor = 500").await;
        let outcomes = send(&stack, batch(&lease, &[499, 500])).await.unwrap();
        assert_eq!(outcomes, [TooOld, Applied]);

        expect_news(&stack, &lease, 600).await;
        test.execute("DELETE FROM tidegate_source").await;
        assert_eq!(send(&stack, batch(&lease, &[616])).await.unwrap(), [Applied]);

        assert_eq!(low_revisions(&test).await, [1, 2, 3]);
        assert_eq!(test.count("ledger").await, 3 + 5 * 16 + 2);
        assert_eq!(test.count("tidegate_inbox").await, 3 + 5 * 16 + 2);
    }
}

// A stream that repeats itself by turns, against a set of the messages.
#[tokio::test]
async fn a_stream_has_each_message_once_whatever_was_expected() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let mut random = Rng::with_seed(7);
        let mut known = BTreeSet::new();
        let mut next = 0;
        for round in 0..200 {
            // Long stretches of news, and shorter ones of anything.
            let repeats = if round % 50 < 40 { 0.004 } else { 0.4 };
            let mut offsets = BTreeSet::new();
            for _ in 0..random.usize(1..6) {
                let again = next > 0 && random.f64() < repeats;
                offsets.insert(if again { random.i64(0..next) } else { next });
                next += i64::from(!again);
            }
            let offsets: Vec<_> = offsets.into_iter().collect();
            let new = |offset: &i64| if known.insert(*offset) { Applied } else { Duplicate };
            let expected: Vec<_> = offsets.iter().map(new).collect();
            assert_eq!(send(&stack, batch(&lease, &offsets)).await.unwrap(), expected);
        }
        assert_eq!(revisions(&test).await, (0..next).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn namespaces_do_not_know_each_others_messages() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        assert_eq!(send(&stack, batch(&lease, &[1])).await.unwrap(), [Applied]);
        let rebuilt = test.database.in_namespace("main", 2).await.unwrap();
        let rebuilding = InboxLayer::new(Inbox::new(rebuilt)).layer(effect_fn(apply));
        assert_eq!(send(&rebuilding, batch(&lease, &[1])).await.unwrap(), [Applied]);
        assert_eq!(send(&rebuilding, batch(&lease, &[1])).await.unwrap(), [Duplicate]);
        let again = Database::open(test.options.clone()).await.unwrap();
        assert_eq!(again.namespace(), test.database.namespace());
    }
}

// N3: the marker goes with the effect.
#[tokio::test]
async fn an_effect_that_fails_leaves_no_marker() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let refused = vec![delivery(&lease, 1, 1, 1), delivery(&lease, 2, 2, REFUSED)];
        let error = send(&stack, batch_of(refused)).await.unwrap_err();
        assert_eq!(error.culprit().map(|it| it.offset), Some(2));
        assert_eq!(test.count("tidegate_inbox").await, 0);
        assert_eq!(send(&stack, batch(&lease, &[1])).await.unwrap(), [Applied]);
    }
}

// N4: what was claimed and not committed is not a duplicate.
#[tokio::test]
async fn nothing_is_committed_without_the_lease_and_the_next_owner_applies_it() {
    for test in TestDatabase::each().await {
        let (owner, lease) = common::lease();
        let owner = Arc::new(Mutex::new(Some(owner)));
        // The lease ends when the effect is done.
        let losing = layer(&test).layer(service_fn(move |request: InTxn| {
            let owner = Arc::clone(&owner);
            async move {
                let outcomes = effect_fn(apply).oneshot(request).await;
                drop::<Option<LeaseOwner>>(owner.lock().unwrap().take());
                outcomes
            }
        }));
        let error = send(&losing, batch(&lease, &[1])).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert!(error.downcast_ref::<LeaseEnded>().is_some());
        assert_eq!(test.count("tidegate_inbox").await, 0);
        assert_eq!(test.count("ledger").await, 0);

        let (_owner, lease) = common::lease();
        assert_eq!(send(&stack(&test), batch(&lease, &[1])).await.unwrap(), [Applied]);
    }
}

// By the clock: nobody has told the lease that it is over.
#[tokio::test]
async fn nothing_is_committed_when_the_last_proof_has_run_out() {
    for test in TestDatabase::each().await {
        let terms = Terms { session: Some(Duration::from_millis(100)), ..Terms::default() };
        let partition = TopicPartition::new("topic", 0);
        let (_owner, lease) = Lease::grant_on(partition, Epoch::new(1, "member"), terms);
        let slow = layer(&test).layer(service_fn(|request: InTxn| async move {
            let lease = request.request.first().lease.clone();
            let outcomes = effect_fn(apply).oneshot(request).await;
            while lease.is_held() {
                sleep(Duration::from_millis(1)).await;
            }
            outcomes
        }));
        let error = send(&slow, batch(&lease, &[1])).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert_eq!(test.count("tidegate_inbox").await, 0);
    }
}

#[tokio::test]
async fn a_draining_lease_is_good_for_the_batch_that_runs() {
    for test in TestDatabase::each().await {
        let (owner, lease) = common::lease();
        owner.drain();
        assert_eq!(send(&stack(&test), batch(&lease, &[1])).await.unwrap(), [Applied]);
    }
}

#[tokio::test]
async fn ids_come_from_the_record_if_asked() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let inbox = || Inbox::new(test.database.clone());
        let record = |offset| Record::new(lease.partition().clone(), offset, "1");
        let delivery = |record| {
            let value = Transfer { id: 0, amount: 1 };
            Batch::of_one(Delivery::new(lease.clone(), record).with_value(value))
        };

        let by_offset = InboxLayer::by_offset(inbox()).layer(effect_fn(apply));
        for (offset, outcome) in [(1, Applied), (2, Applied), (1, Duplicate)] {
            assert_eq!(send(&by_offset, delivery(record(offset))).await.unwrap(), [outcome]);
        }
        let by_key = InboxLayer::by_key(inbox()).layer(effect_fn(apply));
        for (offset, outcome) in [(3, Applied), (4, Duplicate)] {
            let record = record(offset).with_key("k");
            assert_eq!(send(&by_key, delivery(record)).await.unwrap(), [outcome]);
        }
        let by_header = InboxLayer::by_header(inbox(), "id").layer(effect_fn(apply));
        for (offset, outcome) in [(5, Applied), (6, Duplicate)] {
            let record = record(offset).with_headers([Header::new("id", "h")]);
            assert_eq!(send(&by_header, delivery(record)).await.unwrap(), [outcome]);
        }
        let error = send(&by_key, delivery(record(7))).await.unwrap_err();
        assert_eq!((error.class(), error.culprit().unwrap().offset), (Class::Poison, 7));
        let error = send(&by_header, delivery(record(8))).await.unwrap_err();
        assert_eq!((error.class(), error.culprit().unwrap().offset), (Class::Poison, 8));
    }
}

/// An effect that is done, says so, waits to be let on, and may fail then.
#[derive(Clone)]
struct Held {
    gate: Arc<Semaphore>,
    done: mpsc::Sender<()>,
    failures: Arc<AtomicU32>,
}

impl Held {
    fn failing(failures: u32) -> (Self, mpsc::Receiver<()>) {
        let (done, is_done) = mpsc::channel(1);
        let failures = Arc::new(AtomicU32::new(failures));
        (Self { gate: Arc::new(Semaphore::new(0)), done, failures }, is_done)
    }
}

impl Service<InTxn> for Held {
    type Response = Outcomes;
    type Error = Error;
    type Future = <EffectService<Transfer> as Service<InTxn>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: InTxn) -> Self::Future {
        let Self { gate, done, failures } = self.clone();
        Box::pin(async move {
            let outcomes = effect_fn(apply).oneshot(request).await?;
            let _ = done.send(()).await;
            gate.acquire().await.expect("nobody closes it").forget();
            let left = |left: u32| left.checked_sub(1);
            if failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
                return Err(Error::new(Class::Transient, "not now"));
            }
            Ok(outcomes)
        })
    }
}

#[tokio::test]
async fn a_concurrent_duplicate_waits_for_the_first() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let cases = [
        (10, 0, Duplicate, false),
        (11, 1, Applied, false),
        (12, 0, Duplicate, true),
        (13, 1, Applied, true),
    ];
    for (id, failures, outcome, expects) in cases {
        let (_owner, lease) = common::lease();
        let other = stack(&test);
        if expects {
            expect_news(&other, &lease, 100 * id).await;
        }
        let (held, mut done) = Held::failing(failures);
        let gate = Arc::clone(&held.gate);
        let first = layer(&test).layer(held).oneshot(batch(&lease, &[id]));
        let first = tokio::spawn(first);
        done.recv().await.unwrap();
        let second = tokio::spawn(other.oneshot(batch(&lease, &[id])));
        test.until_blocked("tidegate_inbox").await;
        assert!(!second.is_finished());
        gate.add_permits(1);
        assert_eq!(first.await.unwrap().is_err(), failures > 0);
        assert_eq!(second.await.unwrap().unwrap(), Outcomes::all(outcome, 1));
    }
    assert_eq!(low_revisions(&test).await, [10, 11, 12, 13]);
}

// The lanes of a partition share its row, and each stack looks at it once.
#[tokio::test]
async fn a_lane_that_takes_its_time_with_the_first_batch_holds_up_no_other() {
    let Some(test) = TestDatabase::postgres().await else { return };
    // What is new to the inbox, and a lease that jumped.
    for start in [0, 100] {
        let terms = Terms { acknowledged: Some(start), ..Terms::default() };
        let (_owner, lease) =
            Lease::grant_on(TopicPartition::new("topic", 0), Epoch::new(1, "member"), terms);
        let (held, mut done) = Held::failing(0);
        let gate = Arc::clone(&held.gate);
        let slow = tokio::spawn(layer(&test).layer(held).oneshot(batch(&lease, &[start + 1])));
        done.recv().await.unwrap();
        assert_eq!(send(&stack(&test), batch(&lease, &[start])).await.unwrap(), [Applied]);
        assert!(!slow.is_finished());
        gate.add_permits(1);
        assert_eq!(slow.await.unwrap().unwrap(), Outcomes::all(Applied, 1));
    }
}

// Unsorted, overlapping batches deadlock (I13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_do_not_deadlock() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let (_owner, lease) = common::lease();
    for round in 0..12 {
        // They know the partition, and none, half or all of them expect news.
        let stacks: Vec<_> = (0..4).map(|_| stack(&test)).collect();
        for (worker, stack) in (0..).zip(&stacks) {
            let expects = round % 3 == 2 || (round % 3 == 1 && worker % 2 == 0);
            let first = 1_000 * (1 + 4 * round + worker);
            match expects {
                true => expect_news(stack, &lease, first).await,
                false => drop(send(stack, batch(&lease, &[first])).await.unwrap()),
            }
        }
        let start = Arc::new(Barrier::new(stacks.len()));
        let mut tasks = Vec::new();
        for (worker, stack) in (0..).zip(stacks) {
            // The same messages, each worker in an order of its own.
            let offsets = (0..50).map(|n| round * 50 + (n * 7 + worker * 13) % 50);
            let batch = batch(&lease, &offsets.collect::<Vec<_>>());
            let start = Arc::clone(&start);
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                stack.oneshot(batch).await
            }));
        }
        let mut applied = 0;
        for task in tasks {
            let outcomes = task.await.unwrap().expect("nobody is the victim of a deadlock");
            applied += outcomes.into_iter().filter(|it| *it == Applied).count();
        }
        assert_eq!(applied, 50);
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_again() {
    let Some((test, proxy)) = TestDatabase::proxied().await else { return };
    let (_owner, lease) = common::lease();
    let stack = stack(&test);
    // From now on, the partition is known, and a batch is one transaction.
    assert_eq!(send(&stack, batch(&lease, &[0])).await.unwrap(), [Applied]);

    for (expects, [lost, cut]) in [(false, [1, 2]), (true, [3, 4])] {
        if expects {
            expect_news(&stack, &lease, 100).await;
        }
        proxy.cut_at_commit();
        let error = send(&stack, batch(&lease, &[lost])).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(send(&stack, batch(&lease, &[lost])).await.unwrap(), [Duplicate]);

        if expects {
            expect_news(&stack, &lease, 200).await;
        }
        proxy.cut_before_commit();
        let error = send(&stack, batch(&lease, &[cut])).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(send(&stack, batch(&lease, &[cut])).await.unwrap(), [Applied]);
    }
    assert_eq!(low_revisions(&test).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_backend_that_is_ended_is_a_failure_for_now() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let (_owner, lease) = common::lease();
    let (held, mut done) = Held::failing(0);
    let gate = Arc::clone(&held.gate);
    let held = layer(&test).layer(held);
    let call = tokio::spawn(held.clone().oneshot(batch(&lease, &[1])));
    done.recv().await.unwrap();
    test.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
        WHERE relation = 'ledger'::regclass AND pid <> pg_backend_pid()",
    )
    .await;
    gate.add_permits(2);
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let again = tokio::spawn(held.oneshot(batch(&lease, &[1])));
    done.recv().await.unwrap();
    assert_eq!(again.await.unwrap().unwrap(), Outcomes::all(Applied, 1));
}

#[tokio::test]
async fn a_partition_says_that_the_database_is_down_until_it_is_not() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let mut options = test.options.clone();
        options.max_connections = 1;
        options.acquire_timeout = Duration::from_millis(50);
        let database = Database::open(options).await.unwrap();
        let stack = InboxLayer::new(Inbox::new(database.clone())).layer(effect_fn(apply));
        let busy = database.begin().await.unwrap();
        let waiting = batch(&lease, &[1]);
        let error = send(&stack, waiting.clone()).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(lease.condition(), Condition::DatabaseDown);
        assert!(waiting.time_waited() >= Duration::from_millis(50), "waiting is not running");
        drop(busy);
        assert_eq!(send(&stack, waiting).await.unwrap(), [Applied]);
        assert_eq!(lease.condition(), Condition::Running);
    }
}

#[tokio::test]
async fn a_success_does_not_hide_that_the_partition_waits_for_a_gap() {
    let test = TestDatabase::sqlite().await;
    let (_owner, lease) = common::lease();
    lease.set_condition(Condition::WaitingForGap);
    assert_eq!(send(&stack(&test), batch(&lease, &[1])).await.unwrap(), [Applied]);
    assert_eq!(lease.condition(), Condition::WaitingForGap);
}

// ===== what a batch sets free =====

/// Answers that there is more, or fails, as it is told.
#[derive(Clone)]
struct More {
    script: Arc<Mutex<Vec<Result<bool, Class>>>>,
    calls: Arc<AtomicU32>,
    readied: bool,
}

impl More {
    fn new(script: &[Result<bool, Class>]) -> Self {
        let script = script.iter().rev().copied().collect();
        Self { script: Arc::new(Mutex::new(script)), calls: Arc::default(), readied: false }
    }
}

impl Service<InTxn> for More {
    type Response = Outcomes;
    type Error = Error;
    type Future = <EffectService<Transfer> as Service<InTxn>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.readied = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, InTransaction { txn, request, .. }: InTxn) -> Self::Future {
        assert!(std::mem::take(&mut self.readied), "a call needs a readiness of its own");
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let step = self.script.lock().expect("nobody panics while it holds this").pop();
        Box::pin(async move {
            let transfer = Transfer { id: call.into(), amount: 1 };
            apply(&txn, &transfer).await.map_err(tidegate_sql::EffectError::from)?;
            let more = step.expect("the script is long enough");
            let more = more.map_err(|class| Error::new(class, "no"))?;
            Ok(Outcomes::all(Applied, request.len()).with_more(more))
        })
    }
}

#[tokio::test]
async fn what_a_batch_sets_free_is_done_in_further_transactions() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let more = More::new(&[Ok(true), Ok(true), Ok(false)]);
        let outcomes = layer(&test).layer(more.clone()).oneshot(batch(&lease, &[1, 2])).await;
        assert_eq!(outcomes.unwrap(), Outcomes::all(Applied, 2), "and no more of it");
        assert_eq!(more.calls.load(Ordering::SeqCst), 3);
        assert_eq!(revisions(&test).await, [0, 1, 2], "each was committed");
        assert_eq!(test.count("tidegate_inbox").await, 2, "and claimed once");
    }
}

#[tokio::test]
async fn what_fails_in_a_further_transaction_does_not_undo_the_batch() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let failed = Err(Class::Transient);
        for (script, calls) in [
            (vec![Ok(true), failed, failed, Ok(true), failed, Ok(false)], 6),
            (vec![Ok(true), failed, Err(Class::Poison), failed], 4),
        ] {
            let more = More::new(&script);
            let stack = layer(&test).layer(more.clone());
            let id = i64::from(calls);
            let outcomes = stack.oneshot(batch(&lease, &[id])).await;
            assert_eq!(outcomes.unwrap(), Outcomes::all(Applied, 1));
            assert_eq!(more.calls.load(Ordering::SeqCst), u32::try_from(calls).unwrap());
            assert!(more.script.lock().unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn a_lease_that_drains_goes_on_with_nothing() {
    for test in TestDatabase::each().await {
        let (owner, lease) = common::lease();
        owner.drain();
        let more = More::new(&[Ok(true)]);
        let outcomes = layer(&test).layer(more.clone()).oneshot(batch(&lease, &[1])).await;
        assert_eq!(outcomes.unwrap(), Outcomes::all(Applied, 1));
        assert_eq!(more.calls.load(Ordering::SeqCst), 1);
    }
}
