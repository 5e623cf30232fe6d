//! The contract of the sequencer, under an inbox, on each database.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;
mod transfer;

use std::sync::Arc;

use sea_orm::{ActiveValue::Set, EntityTrait as _};
use tidegate_core::{
    Batch, BoxError, Class, Condition, Delivery, Error, Header, Identified, Lease, MessageId,
    Outcome::{self, Applied, Duplicate, Parked as Early, Stale},
    Outcomes, Record,
};
use tidegate_inbox::{Inbox, InboxLayer, InboxService};
use tidegate_sequencer::{
    Bounds, DeltaError, GapPolicy, Parked, ReleaseFailed, Sequencer, SequencerLayer,
    SequencerService, SkipError, WaitingForGap,
};
use tidegate_sql::{
    DbErr, DeadLetterTable, EffectError, EffectService, Txn, effect_batch_fn, effect_fn,
};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::{
    common::{REFUSED, TestDatabase, lease_on, ledger},
    transfer::{Transfer, decode, encode},
};

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    let row = ledger::ActiveModel {
        account: Set(transfer.account.clone()),
        revision: Set(transfer.revision),
        amount: Set(transfer.amount),
        ..Default::default()
    };
    ledger::Entity::insert(row).exec(txn).await.map(drop)
}

async fn apply_all(txn: &Txn, transfers: &[&Transfer]) -> Result<(), DbErr> {
    for transfer in transfers {
        apply(txn, transfer).await?;
    }
    Ok(())
}

fn sequencer() -> Sequencer<Transfer> {
    Sequencer::parking(decode)
}

type Stack = InboxService<SequencerService<EffectService<Transfer>, Transfer>>;

fn stack(test: &TestDatabase) -> Stack {
    stack_of(test, &sequencer(), effect_fn(apply))
}

fn stack_of(
    test: &TestDatabase,
    sequencer: &Sequencer<Transfer>,
    effect: EffectService<Transfer>,
) -> Stack {
    let inner = SequencerLayer::new(sequencer.clone()).layer(effect);
    InboxLayer::new(Inbox::new(test.database.clone())).layer(inner)
}

/// The transfer of 1 that is a revision of an account.
fn transfer(account: &str, revision: i64) -> Transfer {
    let id = MessageId::of(format!("{account}/{revision}").as_bytes());
    let id = u128::from_be_bytes(id.to_bytes()) >> 1;
    Transfer { id, account: account.to_owned(), revision, amount: 1 }
}

fn delivery(lease: &Lease, offset: i64, transfer: Transfer) -> Arc<Delivery<Transfer>> {
    let record = Record::new(lease.partition().clone(), offset, encode(&transfer));
    Arc::new(Delivery::new(lease.clone(), record).with_value(transfer))
}

/// Deliveries of revisions, at offsets that belong to them.
fn batch(lease: &Lease, transfers: &[(&str, i64)]) -> Batch<Delivery<Transfer>> {
    batch_of(lease, transfers.iter().map(|(account, revision)| transfer(account, *revision)))
}

fn batch_of(
    lease: &Lease,
    transfers: impl IntoIterator<Item = Transfer>,
) -> Batch<Delivery<Transfer>> {
    let each = transfers.into_iter().map(|transfer| {
        let first = i64::from(transfer.account.as_bytes()[0]) * 10_000;
        delivery(lease, first + transfer.revision, transfer)
    });
    Batch::new(each.collect()).expect("it is not empty")
}

async fn send(stack: &Stack, batch: Batch<Delivery<Transfer>>) -> Result<Vec<Outcome>, Error> {
    Ok(stack.clone().oneshot(batch).await?.into_iter().collect())
}

async fn revisions(test: &TestDatabase, account: &str) -> Vec<i64> {
    let rows = test.ledger().await.into_iter().filter(|row| row.account == account);
    rows.map(|row| row.revision).collect()
}

async fn held(test: &TestDatabase) -> i64 {
    let held = if test.is_postgres() { "sum(held)::bigint" } else { "sum(held)" };
    test.value(&format!("SELECT coalesce({held}, 0) FROM tidegate_entity")).await
}

#[tokio::test]
async fn the_next_is_applied_the_stale_skipped_and_the_early_parked() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let first = batch(&lease, &[("a", 1), ("a", 2), ("b", 1), ("b", 3), ("a", 5)]);
        let outcomes = send(&stack, first).await.unwrap();
        assert_eq!(outcomes, [Applied, Applied, Applied, Early, Early]);
        assert_eq!(held(&test).await, 2);
        // The same revisions, as other messages that say the same.
        let again = [transfer("a", 2), transfer("b", 1)].map(|it| Transfer { id: it.id ^ 7, ..it });
        let error = send(&stack, batch_of(&lease, again)).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(DeltaError::Conflict { revision: 2, .. })));
        let next = batch(&lease, &[("a", 3), ("b", 2), ("a", 4)]);
        assert_eq!(send(&stack, next).await.unwrap(), [Applied; 3]);
        assert_eq!(revisions(&test, "a").await, [1, 2, 3, 4, 5]);
        assert_eq!(revisions(&test, "b").await, [1, 2, 3]);
        assert_eq!((held(&test).await, test.count("tidegate_parked").await), (0, 0));
    }
}

#[tokio::test]
async fn a_record_that_waits_comes_back_as_it_was() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = lease_on(3);
        let stack = stack(&test);
        let headers = [Header::new("h", "1"), Header { name: "none".into(), value: None }];
        let plain = delivery(&lease, 7, transfer("a", 2));
        let whole = Record { timestamp: 12_345, ..plain.record.clone() }
            .with_key("key")
            .with_headers(headers);
        let whole = Delivery::new(lease.clone(), whole).with_value(transfer("a", 3));
        let batch = Batch::new(vec![plain, Arc::new(whole)]).unwrap();
        assert_eq!(send(&stack, batch).await.unwrap(), [Early, Early]);
        let waiting = Parked::new(test.database.clone()).list(None, 10).await.unwrap();
        let places: Vec<_> =
            waiting.iter().map(|it| (it.revision, it.expected, it.offset)).collect();
        assert_eq!(places, [(2, 1, 7), (3, 1, 7)]);
        assert_eq!(waiting[0].partition, *lease.partition());
        assert!(waiting[0].since > 1_700_000_000_000, "{:?}", waiting[0]);
        assert_eq!(waiting[0].mark.id, transfer("a", 2).message_id());

        // Released under another lease, by the owner of another partition.
        let (_owner, other) = lease_on(9);
        let (seen, mut records) = tokio::sync::mpsc::channel(9);
        let effect = Spy { seen };
        let spied = SequencerLayer::new(sequencer()).layer(effect);
        let spied = InboxLayer::new(Inbox::new(test.database.clone())).layer(spied);
        let first = batch_of(&other, [transfer("a", 1)]);
        let _ = spied.oneshot(first).await.unwrap();
        let _own = records.recv().await.unwrap();
        let (lease_of, record) = records.recv().await.unwrap();
        assert_eq!(record.key, None);
        assert_eq!((lease_of.partition().partition, record.partition.partition), (9, 3));
        let (_, record) = records.recv().await.unwrap();
        assert_eq!((record.timestamp, record.key.as_deref()), (12_345, Some(&b"key"[..])));
        assert_eq!(record.headers.iter().count(), 2);
        assert_eq!(record.headers.get("none").unwrap().value, None);
    }
}

/// Shows what it is called with.
#[derive(Clone)]
struct Spy {
    seen: tokio::sync::mpsc::Sender<(Lease, Record)>,
}

type InTxn = tidegate_sql::InTransaction<Batch<Delivery<Transfer>>>;

impl Service<InTxn> for Spy {
    type Response = Outcomes;
    type Error = Error;
    type Future = std::future::Ready<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: InTxn) -> Self::Future {
        for delivery in request.request.iter() {
            let shown = (Lease::clone(&delivery.lease), delivery.record.clone());
            self.seen.try_send(shown).expect("there is room");
        }
        std::future::ready(Ok(Outcomes::all(Applied, request.request.len())))
    }
}

// S1: a first revision that is none waits visibly, within bounds.
#[tokio::test]
async fn a_first_revision_that_is_not_the_first_waits() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let bounds = Bounds { per_entity: 2, ..Bounds::default() };
        let stack = stack_of(&test, &sequencer().with_bounds(bounds), effect_fn(apply));
        assert_eq!(send(&stack, batch(&lease, &[("a", 7)])).await.unwrap(), [Early]);
        assert_eq!(send(&stack, batch(&lease, &[("a", 3)])).await.unwrap(), [Early]);
        assert_eq!(lease.condition(), Condition::Running);
        let error = send(&stack, batch(&lease, &[("b", 1), ("a", 9)])).await.unwrap_err();
        assert_eq!(error.class(), Class::Fatal);
        assert_eq!(error.culprit().map(|it| it.offset), Some(970_009));
        let waiting: &WaitingForGap = error.downcast_ref().unwrap();
        assert_eq!((&*waiting.entity, waiting.expected), (&b"a"[..], 1));
        assert_eq!(lease.condition(), Condition::WaitingForGap);
        assert_eq!(test.count("ledger").await, 0);
    }
}

#[tokio::test]
async fn the_namespace_has_a_bound_too() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let bounds = Bounds { per_namespace: 3, ..Bounds::default() };
        let stack = stack_of(&test, &sequencer().with_bounds(bounds), effect_fn(apply));
        let early = batch(&lease, &[("a", 2), ("b", 2), ("c", 2)]);
        assert_eq!(send(&stack, early).await.unwrap(), [Early; 3]);
        let error = send(&stack, batch(&lease, &[("d", 5)])).await.unwrap_err();
        assert_eq!(error.class(), Class::Fatal);
        let waiting: &WaitingForGap = error.downcast_ref().unwrap();
        assert_eq!((&*waiting.entity, waiting.expected), (&b"d"[..], 1));
        assert_eq!(lease.condition(), Condition::WaitingForGap);
        // A gap that is filled makes room.
        assert_eq!(send(&stack, batch(&lease, &[("a", 1)])).await.unwrap(), [Applied]);
        assert_eq!(send(&stack, batch(&lease, &[("d", 5)])).await.unwrap(), [Early]);
    }
}

#[tokio::test]
async fn the_first_revision_may_be_another_and_none_lies_before_all() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let from_seven = sequencer().with_first_revision(7);
        let stack = stack_of(&test, &from_seven, effect_fn(apply));
        let outcomes = send(&stack, batch(&lease, &[("a", 8), ("a", 6), ("a", 7)])).await;
        assert_eq!(outcomes.unwrap(), [Applied, Stale, Applied]);
        assert_eq!(revisions(&test, "a").await, [7, 8]);
        let error = send(&stack, batch(&lease, &[("a", 9), ("a", 0)])).await.unwrap_err();
        assert_eq!((error.class(), error.culprit().unwrap().offset), (Class::Poison, 970_000));
        assert!(matches!(error.downcast_ref(), Some(DeltaError::NoRevision { revision: 0, .. })));
    }
}

#[tokio::test]
async fn a_gap_may_be_poison() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let rejecting = sequencer().with_gaps(GapPolicy::Reject);
        let stack = stack_of(&test, &rejecting, effect_fn(apply));
        let swapped = batch(&lease, &[("a", 2), ("a", 1)]);
        assert_eq!(send(&stack, swapped).await.unwrap(), [Applied, Applied]);
        let error = send(&stack, batch(&lease, &[("a", 3), ("a", 5)])).await.unwrap_err();
        assert_eq!((error.class(), error.culprit().unwrap().offset), (Class::Poison, 970_005));
        let gap = DeltaError::Gap { entity: b"a".to_vec(), revision: 5, expected: 4 };
        assert_eq!(error.downcast_ref(), Some(&gap));
        assert_eq!(test.count("tidegate_parked").await, 0);
    }
}

#[tokio::test]
async fn the_last_write_wins_if_values_are_states() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let newest = sequencer().last_write_wins();
        let stack = stack_of(&test, &newest, effect_fn(apply));
        let first = batch(&lease, &[("a", 40), ("a", 12), ("b", 3), ("a", 41)]);
        assert_eq!(send(&stack, first).await.unwrap(), [Applied, Stale, Applied, Applied]);
        let next = batch(&lease, &[("a", 60), ("b", 2)]);
        assert_eq!(send(&stack, next).await.unwrap(), [Applied, Stale]);
        let other = Transfer { id: 5, amount: 2, ..transfer("a", 60) };
        let error = send(&stack, batch_of(&lease, [other])).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(DeltaError::Conflict { .. })));
        assert_eq!(revisions(&test, "a").await, [40, 41, 60]);
        assert_eq!(test.count("tidegate_parked").await, 0);
    }
}

#[tokio::test]
async fn another_message_of_a_revision_is_a_conflict() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let _ = send(&stack, batch(&lease, &[("a", 1), ("a", 5)])).await.unwrap();
        for revision in [1, 5] {
            let other = Transfer { id: 99, amount: 7, ..transfer("a", revision) };
            let innocent = transfer("b", 1);
            let error = send(&stack, batch_of(&lease, [innocent, other])).await.unwrap_err();
            assert_eq!(error.class(), Class::Poison);
            assert_eq!(error.culprit().map(|it| it.offset), Some(970_000 + revision));
            let known = transfer("a", revision).message_id();
            let found = MessageId::from(99);
            let conflict = DeltaError::Conflict { entity: b"a".to_vec(), revision, known, found };
            assert_eq!(error.downcast_ref(), Some(&conflict));
        }
        assert_eq!(revisions(&test, "a").await, [1]);
        assert_eq!(revisions(&test, "b").await, [0; 0]);
    }
}

#[tokio::test]
async fn a_long_chain_is_released_in_bounded_transactions() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let bounds = Bounds { released: 4, ..Bounds::default() };
        let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = Arc::clone(&sizes);
        let counting = Counting { sizes: noted };
        let stack =
            stack_of(&test, &sequencer().with_bounds(bounds), tidegate_sql::effect_batch(counting));
        let early: Vec<_> = (2..=20).map(|revision| ("a", revision)).collect();
        let _ = send(&stack, batch(&lease, &early)).await.unwrap();
        assert_eq!(send(&stack, batch(&lease, &[("a", 1)])).await.unwrap(), [Applied]);
        assert_eq!(revisions(&test, "a").await, (1..=20).collect::<Vec<_>>());
        assert_eq!(*sizes.lock().unwrap(), [5, 4, 4, 4, 3]);
        assert_eq!((held(&test).await, test.count("tidegate_parked").await), (0, 0));
        assert_eq!(send(&stack, batch(&lease, &[("a", 1)])).await.unwrap(), [Duplicate]);
    }
}

/// Applies, and notes how many it was called with.
struct Counting {
    sizes: Arc<std::sync::Mutex<Vec<usize>>>,
}

impl tidegate_sql::EffectBatch<Transfer> for Counting {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, values: &[&Transfer]) -> Result<(), DbErr> {
        self.sizes.lock().expect("nobody panics while it holds this").push(values.len());
        apply_all(txn, values).await
    }
}

// I13: unsorted, overlapping batches deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_the_same_entities_do_not_deadlock() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let (_owner, lease) = common::lease();
    let newest = sequencer().last_write_wins();
    for round in 0..10 {
        let mut tasks = Vec::new();
        for worker in 0..4_i64 {
            // The same entities, each worker in an order of its own.
            let transfers = (0..40).map(|n| {
                let account = (n * 7 + worker * 13) % 40;
                transfer(&format!("account {account}"), round * 4 + worker)
            });
            let offset = (round * 4 + worker) * 100;
            let each = transfers.zip(offset..).map(|(it, offset)| delivery(&lease, offset, it));
            let batch = Batch::new(each.collect()).unwrap();
            let stack = stack_of(&test, &newest, effect_batch_fn(apply_all));
            tasks.push(tokio::spawn(stack.oneshot(batch)));
        }
        for task in tasks {
            let outcomes = task.await.unwrap().expect("nobody is the victim of a deadlock");
            assert!(outcomes.iter().all(|it| matches!(it, Applied | Stale)));
        }
    }
}

// ===== blame =====

fn poisoned(account: &str, revision: i64) -> Transfer {
    Transfer { amount: REFUSED, ..transfer(account, revision) }
}

/// Sends until it is not a failure for now, as a retry would.
async fn send_until_done(stack: &Stack, batch: &Batch<Delivery<Transfer>>) -> Vec<Outcome> {
    for _ in 0..5 {
        match send(stack, batch.clone()).await {
            Ok(outcomes) => return outcomes,
            Err(error) => {
                assert_eq!(error.class(), Class::Transient, "{}", error.chain());
                assert!(error.downcast_ref::<ReleaseFailed>().is_some());
            }
        }
    }
    panic!("it goes on for ever");
}

#[tokio::test]
async fn a_parked_delta_that_is_poison_is_withheld_and_nobody_else_blamed() {
    for test in TestDatabase::each().await {
        for (account, effect) in [("a", effect_fn(apply)), ("b", effect_batch_fn(apply_all))] {
            let (_owner, lease) = common::lease();
            let stack = stack_of(&test, &sequencer(), effect);
            let early = [transfer(account, 2), poisoned(account, 3), transfer(account, 4)];
            let _ = send(&stack, batch_of(&lease, early)).await.unwrap();
            let first = batch(&lease, &[(account, 1), ("z", if account == "a" { 1 } else { 2 })]);
            assert_eq!(send_until_done(&stack, &first).await, [Applied, Applied]);
            // What the poison does not keep waiting went on.
            assert_eq!(revisions(&test, account).await, [1, 2]);

            // The next of the entity marks it, and the partition goes on.
            let later = batch(&lease, &[(account, 5)]);
            assert_eq!(send_until_done(&stack, &later).await, [Early]);
            let waiting = Parked::new(test.database.clone());
            let list = waiting.list(Some((account.as_bytes(), 0)), 10).await.unwrap();
            let list: Vec<_> = list.iter().filter(|it| it.entity == account.as_bytes()).collect();
            let withheld: Vec<_> =
                list.iter().map(|it| (it.revision, it.withheld.is_some())).collect();
            assert_eq!(withheld, [(3, true), (4, false), (5, false)]);
            let cause = list[0].withheld.clone().unwrap();
            assert!(cause.contains("can never be applied"), "{cause}");
        }
    }
}

#[tokio::test]
async fn a_poison_of_the_batch_is_blamed_though_parked_ones_pass_with_it() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack_of(&test, &sequencer(), effect_fn(apply));
        let _ = send(&stack, batch(&lease, &[("a", 2)])).await.unwrap();
        let guilty = batch_of(&lease, [transfer("a", 1), poisoned("b", 1)]);
        let error = send(&stack, guilty).await.unwrap_err();
        assert_eq!((error.class(), error.culprit().unwrap().offset), (Class::Poison, 980_001));

        // Without a name, it takes a try without what was parked.
        let stack = stack_of(&test, &sequencer(), effect_batch_fn(apply_all));
        let guilty = batch_of(&lease, [transfer("a", 1), poisoned("b", 1)]);
        let error = send(&stack, guilty.clone()).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        let error = send(&stack, guilty).await.unwrap_err();
        assert_eq!((error.class(), error.culprit()), (Class::Poison, None));
        // Apart, as the queue would try it.
        let innocent = batch(&lease, &[("a", 1)]);
        assert_eq!(send_until_done(&stack, &innocent).await, [Applied]);
        assert_eq!(revisions(&test, "a").await, [1, 2]);
    }
}

#[tokio::test]
async fn a_withheld_delta_is_tried_again_when_asked() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let effect = Fragile { is_broken: Arc::clone(&is_broken) };
        let sequencer = sequencer();
        let stack = stack_of(&test, &sequencer, tidegate_sql::effect(effect));
        let _ = send(&stack, batch(&lease, &[("a", 2), ("a", 3)])).await.unwrap();
        assert_eq!(send_until_done(&stack, &batch(&lease, &[("a", 1)])).await, [Applied]);
        assert_eq!(send_until_done(&stack, &batch(&lease, &[("a", 4)])).await, [Early]);
        assert_eq!(revisions(&test, "a").await, [1]);

        is_broken.store(false, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(send(&stack, batch(&lease, &[("a", 5)])).await.unwrap(), [Early]);
        let parked = Parked::new(test.database.clone());
        assert!(!parked.retry(b"a", 9).await.unwrap());
        assert!(parked.retry(b"a", 2).await.unwrap());
        assert_eq!(send(&stack, batch(&lease, &[("a", 6)])).await.unwrap(), [Applied]);
        assert_eq!(revisions(&test, "a").await, [1, 2, 3, 4, 5, 6]);
    }
}

/// Refuses revision 2 while it is broken.
struct Fragile {
    is_broken: Arc<std::sync::atomic::AtomicBool>,
}

impl tidegate_sql::Effect<Transfer> for Fragile {
    type Error = EffectError;

    async fn apply(&self, txn: &Txn, transfer: &Transfer) -> Result<(), EffectError> {
        if transfer.revision == 2 && self.is_broken.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(EffectError::poison("not this one"));
        }
        Ok(apply(txn, transfer).await?)
    }
}

#[tokio::test]
async fn a_parked_record_that_cannot_be_decoded_any_more_is_withheld() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let _ = send(&stack, batch(&lease, &[("a", 2), ("a", 3)])).await.unwrap();
        let strange = |_: &Record| -> Result<Transfer, BoxError> { Err("another format".into()) };
        let newer = stack_of(&test, &Sequencer::parking(strange), effect_fn(apply));
        assert_eq!(send_until_done(&newer, &batch(&lease, &[("a", 1)])).await, [Applied]);
        let waiting = Parked::new(test.database.clone()).list(None, 9).await.unwrap();
        let withheld = waiting[0].withheld.clone().unwrap();
        assert!(withheld.contains("another format"), "{withheld}");
        assert_eq!(revisions(&test, "a").await, [1]);
    }
}

// ===== what people and the clock do =====

#[tokio::test]
async fn an_entity_goes_on_where_it_is_told_and_what_lay_before_is_kept() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let parked = Parked::new(test.database.clone());
        assert!(matches!(parked.skip_to(b"a", 5).await, Err(SkipError::Unknown)));
        let early = batch(&lease, &[("a", 1), ("a", 3), ("a", 5), ("a", 6)]);
        let _ = send(&stack, early).await.unwrap();
        let backwards = parked.skip_to(b"a", 1).await;
        assert!(matches!(backwards, Err(SkipError::Backwards { revision: 1 })));
        assert_eq!(parked.skip_to(b"a", 2).await.unwrap(), 0);
        assert_eq!(parked.skip_to(b"a", 5).await.unwrap(), 1);
        assert_eq!(held(&test).await, 2);

        let letters = DeadLetterTable::new(test.database.clone());
        let buried = letters.list(lease.partition(), 0, 9).await.unwrap();
        assert_eq!(buried.len(), 1);
        assert_eq!(buried[0].record.payload.as_deref(), Some(encode(&transfer("a", 3)).as_bytes()));
        assert!(buried[0].cause.contains("revision 5"), "{}", buried[0].cause);

        let sequencer = sequencer();
        let swept = sequencer.sweep(&test.database, &lease, effect_fn(apply)).await.unwrap();
        assert_eq!((swept.applied, swept.withheld), (2, 0));
        assert_eq!(revisions(&test, "a").await, [1, 5, 6]);
        assert_eq!(
            send(&stack, batch(&lease, &[("a", 2), ("a", 7)])).await.unwrap(),
            [Stale, Applied]
        );
    }
}

#[tokio::test]
async fn a_sweep_applies_what_nobody_came_to() {
    for test in TestDatabase::each().await {
        let (owner, lease) = common::lease();
        let bounds = Bounds { released: 2, ..Bounds::default() };
        let sequencer = sequencer().with_bounds(bounds);
        let stack = stack_of(&test, &sequencer, effect_fn(apply));
        let mut early = Vec::new();
        for account in ["a", "b", "c"] {
            early.extend((2..=6).map(|revision| transfer(account, revision)));
        }
        early.push(poisoned("d", 2));
        early.push(transfer("d", 3));
        let _ = send(&stack, batch_of(&lease, early)).await.unwrap();
        // A process that ended between the gap and what it kept waiting.
        test.execute("UPDATE tidegate_entity SET rev = 1").await;
        let swept = sequencer.sweep(&test.database, &lease, effect_batch_fn(apply_all)).await;
        let swept = swept.unwrap();
        assert_eq!((swept.applied, swept.withheld), (15, 1));
        for account in ["a", "b", "c"] {
            assert_eq!(revisions(&test, account).await, [2, 3, 4, 5, 6]);
        }
        assert_eq!((held(&test).await, test.count("tidegate_parked").await), (2, 2));
        let swept = sequencer.sweep(&test.database, &lease, effect_fn(apply)).await.unwrap();
        assert_eq!((swept.applied, swept.withheld), (0, 0));

        Parked::new(test.database.clone()).retry(b"d", 2).await.unwrap();
        owner.drain();
        let error = sequencer.sweep(&test.database, &lease, effect_fn(apply)).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
    }
}

#[tokio::test]
async fn what_has_waited_too_long_goes_to_the_dead_letters_whole() {
    for test in TestDatabase::each().await {
        let (_owner, lease) = common::lease();
        let stack = stack(&test);
        let early = batch(&lease, &[("a", 2), ("a", 4), ("b", 2), ("c", 2)]);
        let _ = send(&stack, early).await.unwrap();
        let old = if test.is_postgres() { "now() - interval '9 days'" } else { "at - 777600000" };
        test.execute(&format!(
            "UPDATE tidegate_parked SET at = {old} WHERE record_offset IN (970002, 990002)"
        ))
        .await;
        // That one could go on, and is left to a sweep.
        let third = if test.is_postgres() { r"'\x63'" } else { "x'63'" };
        test.execute(&format!("UPDATE tidegate_entity SET rev = 1 WHERE ent = {third}")).await;
        let sequencer = sequencer();
        let aged = sequencer.give_up_aged(&test.database).await.unwrap();
        assert_eq!((aged.entities, aged.deltas), (1, 2));
        let letters = DeadLetterTable::new(test.database.clone());
        let buried = letters.list(lease.partition(), 0, 9).await.unwrap();
        let offsets: Vec<_> = buried.iter().map(|it| it.record.offset).collect();
        assert_eq!(offsets, [970_002, 970_004]);
        assert!(buried[0].cause.contains("revision 1"), "{}", buried[0].cause);
        assert_eq!((held(&test).await, test.count("tidegate_parked").await), (2, 2));

        // It is where it was, and its marker goes with the letter.
        assert_eq!(send(&stack, batch(&lease, &[("a", 2)])).await.unwrap(), [Duplicate]);
        assert!(letters.retry(lease.partition(), 970_002).await.unwrap());
        assert!(!letters.retry(lease.partition(), 970_002).await.unwrap());
        let again = batch(&lease, &[("a", 2), ("a", 1)]);
        assert_eq!(send(&stack, again).await.unwrap(), [Applied, Applied]);
    }
}

// ===== cost =====

#[tokio::test]
async fn a_batch_of_one_takes_as_many_round_trips_as_the_loop_by_hand() {
    let Some((test, proxy)) = TestDatabase::proxied().await else { return };
    let (_owner, lease) = common::lease();
    let in_one = async |txn: &Txn, transfers: &[&Transfer]| -> Result<(), DbErr> {
        let row = |it: &&Transfer| ledger::ActiveModel {
            account: Set(it.account.clone()),
            revision: Set(it.revision),
            amount: Set(it.amount),
            ..Default::default()
        };
        let rows = transfers.iter().map(row);
        ledger::Entity::insert_many(rows).exec_without_returning(txn).await.map(drop)
    };
    let stack = stack_of(&test, &sequencer(), effect_batch_fn(in_one));
    let mut revision = 0;
    let mut cost = async |size: i64| {
        let transfers = (revision + 1..=revision + size).map(|revision| transfer("a", revision));
        let batch = batch_of(&lease, transfers);
        revision += size;
        let before = proxy.round_trips();
        let outcomes = send(&stack, batch).await.unwrap();
        assert!(outcomes.iter().all(|it| *it == Applied));
        proxy.round_trips() - before
    };
    // The first ones make the partition known and prepare the statements.
    for size in [1, 1, 50, 50] {
        let _ = cost(size).await;
    }
    // BEGIN, claim, lock and advance, effect, COMMIT.
    assert_eq!(cost(1).await, 5);
    assert_eq!(cost(50).await, 5);
}

#[tokio::test]
async fn everything_that_was_seen_before_costs_no_commit() {
    let Some((test, proxy)) = TestDatabase::proxied().await else { return };
    let (_owner, lease) = common::lease();
    let stack = stack(&test);
    let same = || batch(&lease, &[("a", 1), ("a", 2)]);
    for _ in 0..3 {
        let _ = send(&stack, same()).await.unwrap();
    }
    // Of another one, the rollback of the last may be counted.
    let before = proxy.round_trips();
    assert_eq!(send(&stack, same()).await.unwrap(), [Duplicate, Duplicate]);
    assert!(proxy.round_trips() - before <= 4, "BEGIN, claim, fingerprints, ROLLBACK");
    assert_eq!(revisions(&test, "a").await, [1, 2]);
}
