//! What the layers do together, over a stack of batches that the test plays.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    collections::BTreeSet,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate_core::{
    Batch, Class, DeadLetters, Delivery, Error, Frontier, Lease, LeaseOwner, Outcome, Outcomes,
    Record, Recorded, TopicPartition,
};
use tidegate_dead_letter::{DeadLetterLayer, DeadLetterService};
use tidegate_decode::{DecodeLayer, DecodeService};
use tidegate_fence::{FenceLayer, FenceService};
use tidegate_frontier::{FrontierLayer, FrontierService};
use tidegate_queue::{QueueConfig, QueueLayer, QueueService};
use tidegate_retry::{Backoff, RetryLayer, RetryService};
use tokio::{sync::Semaphore, time};
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt,
    limit::GlobalConcurrencyLimitLayer,
    util::{BoxCloneService, BoxService},
};
use tower_test::mock::{self, Handle, Mock};

use crate::support::{Strict, delivery, lease};

type Below = Strict<Mock<Batch<Delivery<i64>>, Outcomes>>;
type Decode = fn(&Record) -> Result<i64, &'static str>;

/// A stack has a type that can be written down.
type Stack = FrontierService<
    FenceService<
        DeadLetterService<
            DecodeService<
                QueueService<DeadLetterService<RetryService<Below>, Letters>, i64>,
                Decode,
            >,
            Letters,
        >,
    >,
>;

struct Bench {
    stack: Stack,
    below: Handle<Batch<Delivery<i64>>, Outcomes>,
    frontier: Frontier,
    letters: Letters,
    owner: LeaseOwner,
    lease: Lease,
}

fn bench() -> Bench {
    let (owner, lease) = lease();
    let frontier = Frontier::starting_at(0);
    let letters = Letters::default();
    let (inner, below) = mock::pair();
    let dead_letters = DeadLetterLayer::new(letters.clone(), &lease, &frontier);
    let stack = ServiceBuilder::new()
        .layer(FrontierLayer::new(frontier.clone()))
        .layer(FenceLayer::new(lease.clone()))
        .layer(dead_letters.clone())
        .layer(DecodeLayer::new(decode as Decode))
        .layer(QueueLayer::by_key(QueueConfig::default()))
        .layer(dead_letters)
        .layer(RetryLayer::new(Backoff::default()))
        .service(Strict::new(inner));
    Bench { stack, below, frontier, letters, owner, lease }
}

/// Offset 113 does not decode, and 117 is worse.
#[expect(clippy::panic_in_result_fn, reason = "that is what is tested")]
fn decode(record: &Record) -> Result<i64, &'static str> {
    match record.offset {
        113 => Err("it is not a number"),
        117 => panic!("the decoder panicked"),
        offset => Ok(offset),
    }
}

/// Dead letters in memory.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<Mutex<BTreeSet<i64>>>);

impl DeadLetters for Letters {
    async fn bury(&self, _: &Lease, record: &Record, _: &Error) -> Result<(), Error> {
        self.0.lock().expect("nobody panics with it").insert(record.offset);
        Ok(())
    }

    async fn buried(&self, _: &TopicPartition, from: i64) -> Result<BTreeSet<i64>, Error> {
        let buried = self.0.lock().expect("nobody panics with it");
        Ok(buried.range(from..).copied().collect())
    }
}

type Response = <Stack as Service<Delivery>>::Future;

impl Bench {
    async fn send(&mut self, offset: i64) -> Response {
        let ready = ServiceExt::<Delivery>::ready(&mut self.stack);
        ready.await.expect("readiness is no error here").call(delivery(&self.lease, offset))
    }

    async fn send_all(&mut self, offsets: Range<i64>) -> Vec<Response> {
        let mut responses = Vec::new();
        for offset in offsets {
            responses.push(self.send(offset).await);
        }
        responses
    }

    /// Answers a batch, and returns how many there were.
    async fn answer(&mut self, result: Result<Outcome, Error>) -> usize {
        let (batch, reply) =
            done(self.below.next_request()).await.expect("the lane holds the mock");
        match result {
            Ok(outcome) => reply.send_response(Outcomes::all(outcome, batch.len())),
            Err(error) => reply.send_error(error),
        }
        batch.len()
    }
}

/// What is to come. The clock is paused: an hour passes only if nothing else
/// can happen.
async fn done<F: Future>(future: F) -> F::Output {
    time::timeout(Duration::from_secs(3_600), future).await.expect("it comes")
}

async fn classes(responses: Vec<Response>) -> Vec<Result<Outcome, Class>> {
    let mut classes = Vec::new();
    for response in responses {
        classes.push(done(response).await.map(Recorded::outcome).map_err(|error| error.class()));
    }
    classes
}

// C5: a drain with 100 in flight: what finishes in it is the prefix that is
// committed.
#[tokio::test(start_paused = true)]
async fn a_drain_commits_the_prefix_that_finished() {
    let mut bench = bench();
    let responses = bench.send_all(0..100).await;
    let mut done = 0;
    while done < 31 {
        done += bench.answer(Ok(Outcome::Applied)).await;
    }
    let (running, reply) = bench.below.next_request().await.unwrap();
    bench.owner.drain();
    reply.send_response(Outcomes::all(Outcome::Applied, running.len()));
    done += running.len();

    let classes = classes(responses).await;
    let (finished, left) = classes.split_at(done);
    assert!(!left.is_empty());
    assert!(finished.iter().all(|class| *class == Ok(Outcome::Applied)));
    assert!(left.iter().all(|class| *class == Err(Class::Fenced)));
    assert_eq!(bench.frontier.close(), done as i64);
}

// C11: a cancelled record is never complete.
#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_in_the_middle_of_a_batch_leaves_its_offset_open() {
    let mut bench = bench();
    let first = bench.send(0).await;
    bench.answer(Ok(Outcome::Applied)).await;
    assert_eq!(classes(vec![first]).await, [Ok(Outcome::Applied)]);
    let mut responses = bench.send_all(1..3).await;
    let (batch, reply) = bench.below.next_request().await.unwrap();
    assert_eq!(batch.len(), 2);
    drop(responses.remove(0));
    reply.send_response(Outcomes::all(Outcome::Applied, 2));
    assert_eq!(classes(responses).await, [Ok(Outcome::Applied)]);
    assert_eq!(bench.frontier.offset(), 1, "although its effect is there");
    assert!(bench.frontier.failure().is_some());
}

#[tokio::test(start_paused = true)]
async fn poison_is_found_and_buried_while_its_lane_waits_and_the_rest_goes_on() {
    let mut bench = bench();
    let mut responses = bench.send_all(0..7).await;
    bench.answer(Ok(Outcome::Applied)).await;
    bench.answer(Ok(Outcome::Applied)).await;
    // 3 to 6 are one batch, and 4 is at fault.
    let poison = || Error::new(Class::Poison, "no such account");
    assert_eq!(bench.answer(Err(poison())).await, 4);
    assert_eq!(bench.answer(Err(poison())).await, 2);
    assert_eq!(bench.answer(Ok(Outcome::Applied)).await, 1);
    assert_eq!(bench.answer(Err(poison())).await, 1);
    assert_eq!(bench.answer(Ok(Outcome::Applied)).await, 2);
    responses.push(bench.send(7).await);
    bench.answer(Ok(Outcome::Applied)).await;

    let ok = Ok(Outcome::Applied);
    assert_eq!(classes(responses).await, [ok, ok, ok, ok, Ok(Outcome::Buried), ok, ok, ok]);
    assert_eq!(bench.frontier.offset(), 8);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_buried_above_the_queue() {
    let mut bench = bench();
    let response = bench.send(113).await;
    assert_eq!(classes(vec![response]).await, [Ok(Outcome::Buried)]);
    assert_eq!(*bench.letters.0.lock().unwrap(), BTreeSet::from([113]));
    assert_eq!(bench.frontier.offset(), 114);
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_not_seen_above_the_retry() {
    let mut bench = bench();
    let response = bench.send(0).await;
    bench.answer(Err(Error::new(Class::Transient, "deadlock detected"))).await;
    bench.answer(Ok(Outcome::Applied)).await;
    assert_eq!(classes(vec![response]).await, [Ok(Outcome::Applied)]);
}

// A drain is short: nobody waits between two tries, and nothing is complete.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_wait_for_a_retry_and_leaves_the_offset_open() {
    let mut bench = bench();
    let responses = vec![bench.send(0).await, bench.send(1).await];
    let started = time::Instant::now();
    bench.answer(Err(Error::new(Class::Transient, "the database is away"))).await;
    time::advance(Duration::from_millis(1)).await;
    bench.owner.drain();
    let expected = [Err(Class::Transient), Err(Class::Fenced)];
    assert_eq!(classes(responses).await, expected);
    assert_eq!(started.elapsed(), Duration::from_millis(1));
    assert_eq!(bench.frontier.close(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_decoder_that_panics_abandons_its_ticket_and_leaves_the_stack_whole() {
    let mut bench = bench();
    ServiceExt::<Delivery>::ready(&mut bench.stack).await.unwrap();
    let poisoned = delivery(&bench.lease, 117);
    catch_unwind(AssertUnwindSafe(|| drop(bench.stack.call(poisoned)))).unwrap_err();
    assert_eq!(bench.frontier.failure().unwrap().class(), Class::Fatal);
    let response = bench.send(118).await;
    bench.answer(Ok(Outcome::Applied)).await;
    assert_eq!(classes(vec![response]).await, [Ok(Outcome::Applied)]);
    assert_eq!(bench.frontier.offset(), 117);
}

// Boxed at both of its boundaries, and with Tower's own layers where they fit.
#[tokio::test(start_paused = true)]
async fn a_stack_can_be_boxed_and_mixed_with_towers_layers() {
    let (_owner, lease) = lease();
    let frontier = Frontier::starting_at(0);
    let batches = ServiceBuilder::new()
        .layer(RetryLayer::new(Backoff::default()))
        .timeout(Duration::from_secs(30))
        // One permit a transaction, for all partitions.
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(Arc::new(Semaphore::new(2))))
        .service_fn(async |batch: Batch<Delivery<i64>>| {
            Ok::<_, BoxError>(Outcomes::all(Outcome::Applied, batch.len()))
        });
    let batches: BoxCloneService<_, _, Error> = BoxCloneService::new(batches);
    let stack = ServiceBuilder::new()
        .layer(FrontierLayer::new(frontier.clone()))
        .layer(FenceLayer::new(lease.clone()))
        .layer(DecodeLayer::new(decode))
        .layer(QueueLayer::by_key(QueueConfig::default().lanes(4)))
        .service(batches);
    let mut stack: BoxService<Delivery, Recorded, Error> = BoxService::new(stack);
    for offset in 0..3 {
        let recorded = stack.ready().await.unwrap().call(delivery(&lease, offset)).await.unwrap();
        assert_eq!(recorded.outcome(), Outcome::Applied);
    }
    assert_eq!(frontier.offset(), 3);
}
