//! Random runs: several owners of one partition at a time, over overlapping
//! ranges of a stream with everything that goes wrong.
//!
//! `TIDEGATE_TEST_SEEDS` says how many; 3 by default.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;
mod transfer;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sea_orm::{ActiveValue::Set, EntityTrait as _, RuntimeErr};
use tidegate_core::{Batch, Class, Delivery, Error, Lease, Outcome, Outcomes, Record};
use tidegate_inbox::{Conflict, Inbox, InboxLayer, InboxService};
use tidegate_sequencer::{Bounds, DeltaError, Parked, Sequencer, SequencerLayer, SequencerService};
use tidegate_sql::{DbErr, Effect, EffectBatch, EffectService, Txn, effect, effect_batch};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::{Layer as _, ServiceExt as _};

use crate::{
    common::{REFUSED, TestDatabase, ledger},
    transfer::{Transfer, decode, encode},
};

const ACCOUNTS: u64 = 12;
const REVISIONS: i64 = 25;
// The revision of account 0 that no database takes at first.
const POISON: i64 = 9;
// No consumer starts behind this.
const LATEST_START: u64 = 40;

/// A source of chance that gives every run of a seed the same stream.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    // Xorshift: Marsaglia, "Xorshift RNGs", 2003.
    fn below(&self, bound: u64) -> u64 {
        let step = |mut state: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Some(state)
        };
        let state = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        state.expect("it always steps") % bound
    }

    fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// An effect that takes its time, and fails for now at times. Until it is healed,
/// what is refused is.
#[derive(Clone)]
struct Ledger {
    dice: Arc<Dice>,
    is_healed: Arc<AtomicBool>,
}

impl Ledger {
    async fn apply_one(&self, txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
        if self.dice.one_in(20) {
            sleep(Duration::from_millis(self.dice.below(3))).await;
        }
        if self.dice.one_in(60) {
            return Err(DbErr::Conn(RuntimeErr::Internal("lost".to_owned())));
        }
        let healed = self.is_healed.load(Ordering::SeqCst);
        let amount = if healed { transfer.amount.min(1) } else { transfer.amount };
        let row = ledger::ActiveModel {
            account: Set(transfer.account.clone()),
            revision: Set(transfer.revision),
            amount: Set(amount),
            ..Default::default()
        };
        ledger::Entity::insert(row).exec(txn).await.map(drop)
    }
}

impl Effect<Transfer> for Ledger {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
        self.apply_one(txn, transfer).await
    }
}

impl EffectBatch<Transfer> for Ledger {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, transfers: &[&Transfer]) -> Result<(), DbErr> {
        for transfer in transfers {
            self.apply_one(txn, transfer).await?;
        }
        Ok(())
    }
}

/// A stream in which revisions are swapped, messages come again, ids are used
/// again with another payload, and revisions with another id.
fn stream(dice: &Dice) -> Vec<Transfer> {
    let mut stream: Vec<_> = (0..ACCOUNTS * REVISIONS.unsigned_abs())
        .map(|n| {
            let (account, revision) = (n % ACCOUNTS, (n / ACCOUNTS) as i64 + 1);
            let amount = if (account, revision) == (0, POISON) { REFUSED } else { 1 };
            Transfer { id: n.into(), account: format!("account-{account}"), revision, amount }
        })
        .collect();
    for _ in 0..150 {
        let one = dice.below(stream.len() as u64) as usize;
        let other = (one + dice.below(50) as usize).min(stream.len() - 1);
        stream.swap(one, other);
    }
    for _ in 0..80 {
        let again = stream[dice.below(stream.len() as u64) as usize].clone();
        let at = dice.below(stream.len() as u64 + 1) as usize;
        stream.insert(at, again);
    }
    // Behind what they conflict with, which every consumer has met, and which is
    // not refused: what was never claimed conflicts with nothing.
    let originals: Vec<_> = stream[LATEST_START as usize..].to_vec();
    let originals: Vec<_> = originals.into_iter().filter(|it| it.amount == 1).collect();
    for n in 0..12_u64 {
        let original = originals[dice.below(originals.len() as u64) as usize].clone();
        let conflicting = match n % 2 {
            0 => Transfer { amount: 2, ..original },
            _ => Transfer { id: (1_000_000 + n).into(), amount: 2, ..original },
        };
        stream.push(conflicting);
    }
    stream
}

type Stack = InboxService<SequencerService<EffectService<Transfer>, Transfer>>;

fn sequencer() -> Sequencer<Transfer> {
    let bounds = Bounds { released: 3, ..Bounds::default() };
    Sequencer::parking(decode).with_bounds(bounds)
}

fn stack(test: &TestDatabase, effect: EffectService<Transfer>) -> Stack {
    let inner = SequencerLayer::new(sequencer()).layer(effect);
    InboxLayer::new(Inbox::new(test.database.clone())).layer(inner)
}

/// The offset of a record of the stream: they have gaps.
fn offset(index: usize) -> i64 {
    index as i64 * 3
}

/// One owner of the partition, as a lane would behave.
struct Consumer {
    stack: Stack,
    lease: Lease,
    dice: Arc<Dice>,
    stream: Arc<Vec<Transfer>>,
    buried: Arc<Mutex<BTreeMap<usize, Error>>>,
}

impl Consumer {
    async fn run(&self, from: usize) -> HashMap<Outcome, u64> {
        let mut outcomes = HashMap::new();
        let mut next = from;
        while next < self.stream.len() {
            let size = [1, 1, 4, 10, 30][self.dice.below(5) as usize];
            let end = self.stream.len().min(next + size);
            for outcome in self.deliver(next..end).await {
                *outcomes.entry(outcome).or_default() += 1;
            }
            next = end;
        }
        outcomes
    }

    /// Delivers records until all of them have an outcome.
    async fn deliver(&self, range: Range<usize>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut parts = vec![range];
        while let Some(part) = parts.pop() {
            let error = match self.send(part.clone()).await {
                Some(Ok(done)) => {
                    outcomes.extend(done);
                    continue;
                }
                Some(Err(error)) if error.class() != Class::Transient => error,
                _ => {
                    parts.push(part);
                    continue;
                }
            };
            assert_eq!(error.class(), Class::Poison, "{}", error.chain());
            if part.len() == 1 {
                let mut buried = self.buried.lock().expect("nobody panics while it holds this");
                buried.insert(part.start, error);
                outcomes.push(Outcome::Buried);
                continue;
            }
            // Before, alone, after; or halves. The first of them comes next.
            let at = error
                .culprit()
                .and_then(|it| part.clone().find(|index| offset(*index) == it.offset));
            let middle = part.start + part.len() / 2;
            match at {
                Some(at) => parts.extend([at + 1..part.end, at..at + 1, part.start..at]),
                None => parts.extend([middle..part.end, part.start..middle]),
            }
            parts.retain(|part| !part.is_empty());
        }
        outcomes
    }

    /// Sends a batch once; at times, it is dropped while it runs.
    async fn send(&self, range: Range<usize>) -> Option<Result<Outcomes, Error>> {
        let delivery = |index: usize| {
            let transfer = self.stream[index].clone();
            let partition = self.lease.partition().clone();
            let record = Record::new(partition, offset(index), encode(&transfer));
            Arc::new(Delivery::new(self.lease.clone(), record).with_value(transfer))
        };
        let batch = Batch::new(range.map(delivery).collect()).expect("it is not empty");
        let call = self.stack.clone().oneshot(batch);
        if self.dice.one_in(10) {
            let patience = Duration::from_micros(self.dice.below(6_000));
            return timeout(patience, call).await.ok();
        }
        Some(call.await)
    }
}

fn seeds() -> Range<u64> {
    let seeds = env::var("TIDEGATE_TEST_SEEDS");
    1..1 + seeds.map_or(3, |seeds| seeds.parse().expect("a number"))
}

// In real time: the clock of a paused runtime runs on while SQLite works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_delta_once_and_in_order_whatever_goes_wrong() {
    for seed in seeds() {
        for test in TestDatabase::each().await {
            run(&test, seed).await;
        }
    }
}

async fn run(test: &TestDatabase, seed: u64) {
    let dice = Arc::new(Dice::new(seed));
    let stream = Arc::new(stream(&dice));
    let ledger = Ledger { dice: Arc::clone(&dice), is_healed: Arc::default() };
    let buried = Arc::<Mutex<BTreeMap<usize, Error>>>::default();
    let (_owner, lease) = common::lease();
    let consumer = |effect: EffectService<Transfer>| Consumer {
        stack: stack(test, effect),
        lease: lease.clone(),
        dice: Arc::clone(&dice),
        stream: Arc::clone(&stream),
        buried: Arc::clone(&buried),
    };

    let mut consumers = JoinSet::new();
    for n in 0..4 {
        let effect = if n % 2 == 0 { effect(ledger.clone()) } else { effect_batch(ledger.clone()) };
        let consumer = consumer(effect);
        let from = if n == 0 { 0 } else { dice.below(LATEST_START) as usize };
        consumers.spawn(async move { consumer.run(from).await });
    }
    let mut outcomes: HashMap<Outcome, u64> = HashMap::new();
    while let Some(consumer) = consumers.join_next().await {
        for (outcome, count) in consumer.expect("no consumer panics") {
            *outcomes.entry(outcome).or_default() += count;
        }
    }

    let sweep = async || loop {
        let service = effect(ledger.clone());
        match sequencer().sweep(&test.database, &lease, service).await {
            Ok(swept) => return swept,
            Err(error) => assert_eq!(error.class(), Class::Transient, "{}", error.chain()),
        }
    };
    // What a consumer was stopped at between a gap and what waited behind it.
    sweep().await;

    // All but what the poison keeps waiting was applied, once and in order.
    let parked = Parked::new(test.database.clone());
    let applied = applied(test).await;
    for account in 0..ACCOUNTS {
        let account = format!("account-{account}");
        let last = if account == "account-0" { POISON - 1 } else { REVISIONS };
        assert_eq!(applied[&account], (1..=last).collect::<Vec<_>>(), "{account}, seed {seed}");
    }
    let waiting = parked.list(None, 1_000).await.expect("the database is there");
    assert!(waiting.iter().all(|it| it.entity == b"account-0"), "seed {seed}: {waiting:?}");
    let ids_used_again = conflicts(&buried, |error| error.downcast_ref::<Conflict>().is_some());
    let expected: BTreeSet<_> = (0..12).step_by(2).map(|n| stream.len() - 12 + n).collect();
    assert!(ids_used_again.is_superset(&expected), "seed {seed}: {ids_used_again:?}");
    let revisions_used_again =
        conflicts(&buried, |error| error.downcast_ref::<DeltaError>().is_some());
    assert!(revisions_used_again.iter().all(|index| stream[*index].id >= 1_000_000));
    let amounts = test.ledger().await;
    assert!(amounts.iter().all(|row| row.amount == 1), "nothing of a conflict was applied");
    assert!(outcomes.contains_key(&Outcome::Duplicate), "{outcomes:?}");

    // What was refused is not any more: the group is set back, and people ask.
    ledger.is_healed.store(true, Ordering::SeqCst);
    for delta in waiting.iter().filter(|delta| delta.withheld.is_some()) {
        assert!(parked.retry(&delta.entity, delta.revision).await.expect("it is there"));
    }
    consumer(effect(ledger.clone())).run(0).await;
    assert_eq!(sweep().await.withheld, 0);
    let applied = self::applied(test).await;
    assert!(applied.values().all(|it| *it == (1..=REVISIONS).collect::<Vec<_>>()), "seed {seed}");
    assert_eq!(test.count("tidegate_parked").await, 0);
    assert_eq!(parked.list(None, 1).await.expect("the database is there"), []);
}

fn conflicts(
    buried: &Mutex<BTreeMap<usize, Error>>,
    is_one: impl Fn(&Error) -> bool,
) -> BTreeSet<usize> {
    let buried = buried.lock().expect("nobody panics while it holds this");
    buried.iter().filter(|(_, error)| is_one(error)).map(|(index, _)| *index).collect()
}

async fn applied(test: &TestDatabase) -> BTreeMap<String, Vec<i64>> {
    let mut applied: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in test.ledger().await {
        applied.entry(row.account).or_default().push(row.revision);
    }
    applied
}
