//! Any schedule: each delivery is answered, in order per key, within the
//! bounds, and each place is given back.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use proptest::{collection::vec, prelude::*};
use tidegate_core::{Batch, BoxError, Class, Delivery, Error, Outcome, Outcomes};
use tidegate_queue::{QueueConfig, QueueLayer, QueueService};
use tidegate_testkit::Strict;
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};
use tower::{Layer as _, Service, service_fn, util::BoxCloneService};
use tower_test::mock::Spawn;

use crate::support::{delivery, lease};

/// What the stack below does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Applies { millis: u64 },
    IsPoison { named: bool },
    Panics,
    FailsForNow,
}

#[derive(Clone, Debug)]
struct Sent {
    key: Option<u8>,
    size: usize,
    fate: Fate,
    // The driver drops the response.
    dropped: bool,
}

#[derive(Clone, Debug)]
struct Plan {
    config: QueueConfig,
    records: usize,
    bytes: usize,
    sent: Vec<Sent>,
    drained_at: Option<usize>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let fate = prop_oneof![
        60 => (0..4_u64).prop_map(|millis| Fate::Applies { millis }),
        1 => any::<bool>().prop_map(|named| Fate::IsPoison { named }),
        1 => Just(Fate::Panics),
        1 => Just(Fate::FailsForNow),
    ];
    let key = prop::option::of(0..5_u8);
    (key, 1..40_usize, fate, prop::bool::weighted(0.1))
        .prop_map(|(key, size, fate, dropped)| Sent { key, size, fate, dropped })
}

fn plan() -> impl Strategy<Value = Plan> {
    let bounds = (1..5_usize, 1..12_usize, 1..200_usize, 1..6_usize, 1..100_usize);
    (bounds, vec(sent(), 0..80), prop::option::of(0..80_usize)).prop_map(
        |((lanes, records, bytes, batch, batch_bytes), sent, drained_at)| {
            let config = QueueConfig::default().lanes(lanes).records(records).bytes(bytes);
            let config = config.batch_records(batch).batch_bytes(batch_bytes);
            Plan { config, records, bytes, sent, drained_at }
        },
    )
}

type Below = BoxCloneService<Batch<Delivery<Fate>>, Outcomes, BoxError>;
type Applied = Arc<Mutex<Vec<(Option<u8>, i64)>>>;

/// A stack that does to each batch what is its deliveries' fate.
fn below(applied: &Applied) -> Below {
    let applied = Arc::clone(applied);
    BoxCloneService::new(service_fn(move |batch: Batch<Delivery<Fate>>| {
        let applied = Arc::clone(&applied);
        async move {
            for delivery in batch.iter() {
                match delivery.value {
                    Fate::Applies { millis } => sleep(Duration::from_millis(millis)).await,
                    Fate::IsPoison { named: false } => {
                        return Err(Error::new(Class::Poison, "it is poison").into());
                    }
                    Fate::IsPoison { named: true } => {
                        let error = Error::new(Class::Poison, "it is poison");
                        return Err(error.with_culprit(delivery.culprit()).into());
                    }
                    Fate::Panics => panic!("as planned"),
                    Fate::FailsForNow => return Err(BoxError::from("not now")),
                }
            }
            let mut applied = applied.lock().expect("nobody panics with it");
            applied.extend(batch.iter().map(|it| (key(it), it.record.offset)));
            Ok(Outcomes::all(Outcome::Applied, batch.len()))
        }
    }))
}

fn key(delivery: &Delivery<Fate>) -> Option<u8> {
    delivery.record.key.as_deref().map(|key| key[0])
}

/// Sends all of it, as a source does, and returns the answers by offset.
async fn drive(
    queue: &mut QueueService<Strict<Below>, Fate>,
    plan: &Plan,
) -> BTreeMap<i64, Result<Outcome, Class>> {
    let (owner, lease) = lease();
    let mut running = FuturesUnordered::new();
    let mut answers = BTreeMap::new();
    let (mut records, mut bytes) = (0, 0);
    for (offset, sent) in (0_i64..).zip(&plan.sent) {
        if plan.drained_at.is_some_and(|at| at as i64 == offset) {
            owner.drain();
        }
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some((offset, size, answer))) = running.poll_next_unpin(cx) {
                answers.insert(offset, answer);
                records -= 1;
                bytes -= size;
            }
            queue.poll_ready(cx)
        })
        .await
        .expect("a queue is never broken");

        let mut delivery = delivery(&lease, offset).with_value(sent.fate);
        delivery.record.payload = Some(vec![0; sent.size].into());
        delivery.record.key = sent.key.map(|key| vec![key].into());
        let size = delivery.record.size();
        let response = queue.call(delivery);
        if sent.dropped {
            continue;
        }
        records += 1;
        bytes += size;
        assert!(records <= plan.records, "{records} records are in flight");
        assert!(bytes < plan.bytes + size, "{bytes} bytes are in flight");
        running.push(async move { (offset, size, response.await.map_err(|error| error.class())) });
    }
    while let Some((offset, _, answer)) = running.next().await {
        answers.insert(offset, answer);
    }
    answers
}

fn check(plan: &Plan) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime needs no more").block_on(async {
        let applied = Applied::default();
        let layer = QueueLayer::by_key(plan.config.clone());
        let mut queue = layer.layer(Strict::new(below(&applied)));
        // The clock is paused: an hour passes only if nothing can happen.
        let answers = timeout(Duration::from_secs(3_600), drive(&mut queue, plan));
        let answers = answers.await.expect("each delivery is answered");

        // In order per key, each at most once.
        let applied = applied.lock().expect("nobody panics with it").clone();
        for key in (0..5).map(Some).chain([None]) {
            let offsets: Vec<_> = applied.iter().filter(|it| it.0 == key).map(|it| it.1).collect();
            assert!(offsets.is_sorted_by(|a, b| a < b), "{key:?}: {offsets:?}");
        }
        // Behind a failure, nothing of its key is tried.
        for key in (0..5).map(Some).chain([None]) {
            let of_key = answers.iter().filter(|it| plan.sent[*it.0 as usize].key == key);
            let mut rest = of_key.map(|it| it.1).skip_while(|answer| answer.is_ok());
            let first = rest.next();
            // A batch that is not poison fails as a whole.
            let whole = |it: &&Result<_, _>| Some(*it) == first && **it != Err(Class::Poison);
            assert!(rest.skip_while(whole).all(|answer| *answer == Err(Class::Fenced)));
        }
        for (offset, answer) in &answers {
            let done = applied.iter().any(|it| it.1 == *offset);
            assert_eq!(answer.is_ok(), done, "{offset}: {answer:?}");
        }

        // Each place is given back, when the last batch is done.
        while !applied_all_places(&queue, plan.records) {
            timeout(Duration::from_secs(3_600), sleep(Duration::from_secs(1)))
                .await
                .expect("a second");
        }
    });
}

/// Whether as many places can be had as there are.
fn applied_all_places(queue: &QueueService<Strict<Below>, Fate>, records: usize) -> bool {
    let mut clones: Vec<_> = (0..records).map(|_| Spawn::new(queue.clone())).collect();
    clones.iter_mut().all(|clone| clone.poll_ready().is_ready())
}

proptest! {
    #[test]
    fn each_delivery_is_answered_in_order_and_within_the_bounds(plan in plan()) {
        check(&plan);
    }
}

// Two threads, so that wakes race with looks.
#[test]
fn no_wake_up_is_lost_between_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime needs no more").block_on(async {
        for (lanes, records) in [(1, 1), (1, 3), (4, 5)] {
            let sent = |offset: u16| Sent {
                key: Some(offset.to_le_bytes()[0] % 5),
                size: 1,
                fate: Fate::Applies { millis: 0 },
                dropped: offset.is_multiple_of(7),
            };
            let config = QueueConfig::default().lanes(lanes).records(records);
            let sent: Vec<_> = (0..3_000).map(sent).collect();
            let kept = sent.iter().filter(|it| !it.dropped).count();
            let plan = Plan { config, records, bytes: 1 << 30, sent, drained_at: None };
            let inner = service_fn(async |batch: Batch<Delivery<Fate>>| {
                tokio::task::yield_now().await;
                Ok::<_, BoxError>(Outcomes::all(Outcome::Applied, batch.len()))
            });
            let layer = QueueLayer::by_key(plan.config.clone());
            let mut queue = layer.layer(Strict::new(BoxCloneService::new(inner)));
            let driven = tokio::spawn(async move { drive(&mut queue, &plan).await });
            let answers = timeout(Duration::from_secs(60), driven).await.expect("it does not hang");
            let answers = answers.expect("the driver does not panic");
            assert_eq!(answers.len(), kept);
        }
    });
}
