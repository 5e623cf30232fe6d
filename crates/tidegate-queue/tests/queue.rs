//! The queue's contract, driven poll by poll on a paused clock.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    future::pending,
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tidegate_core::{
    Batch, BoxError, Class, Delivery, Epoch, Error, Lease, LeaseOwner, LeaseState, Outcome,
    Outcomes, Record, Terms, TopicPartition,
};
use tidegate_queue::{QueueConfig, QueueError, QueueLayer, QueueService, future::ResponseFuture};
use tokio::time;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_test::mock::{self, SendResponse, Spawn};

use crate::support::{Strict, delivery, lease};

type Inner = Strict<mock::Mock<Batch<Delivery>, Outcomes>>;
type Handle = mock::Handle<Batch<Delivery>, Outcomes>;

/// A queue over a stack that the test plays.
struct Bench {
    queue: QueueService<Inner, ()>,
    below: Handle,
    owner: LeaseOwner,
    lease: Lease,
}

fn bench(config: QueueConfig) -> Bench {
    let (inner, below) = mock::pair();
    let queue = QueueLayer::by_key(config).layer(Strict::new(inner));
    let (owner, lease) = lease();
    Bench { queue, below, owner, lease }
}

impl Bench {
    async fn send(&mut self, offset: i64) -> ResponseFuture<()> {
        let delivery = delivery(&self.lease, offset);
        done(self.queue.ready()).await.expect("a queue is never broken").call(delivery)
    }

    async fn send_all(&mut self, offsets: Range<i64>) -> Vec<ResponseFuture<()>> {
        let mut responses = Vec::new();
        for offset in offsets {
            responses.push(self.send(offset).await);
        }
        responses
    }

    /// The next batch, whose offsets are these.
    async fn expect(&mut self, offsets: &[i64]) -> SendResponse<Outcomes> {
        let (batch, reply) =
            done(self.below.next_request()).await.expect("the lanes hold the mock");
        let got: Vec<_> = batch.iter().map(|delivery| delivery.record.offset).collect();
        assert_eq!(got, offsets);
        reply
    }

    async fn apply(&mut self, offsets: &[i64]) {
        self.expect(offsets).await.send_response(applied(offsets.len()));
    }

    async fn fail(&mut self, offsets: &[i64], error: Error) {
        self.expect(offsets).await.send_error(error);
    }

    async fn nothing_runs(&mut self) {
        settle().await;
        assert_pending!(self.below.poll_request());
    }
}

fn applied(count: usize) -> Outcomes {
    Outcomes::all(Outcome::Applied, count)
}

fn poison() -> Error {
    Error::new(Class::Poison, "no such account")
}

/// Lets all tasks run that can.
async fn settle() {
    time::advance(Duration::from_micros(1)).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// What is to come. The clock is paused: an hour passes only if nothing else
/// can happen.
async fn done<F: Future>(future: F) -> F::Output {
    time::timeout(Duration::from_secs(3_600), future).await.expect("it comes")
}

async fn classes(responses: Vec<ResponseFuture<()>>) -> Vec<Result<Outcome, Class>> {
    let mut classes = Vec::new();
    for response in responses {
        classes.push(done(response).await.map_err(|error| error.class()));
    }
    classes
}

fn own(error: &Error) -> &QueueError {
    error.downcast_ref().expect("the queue answered by itself")
}

// ===== places =====

#[tokio::test(start_paused = true)]
async fn poll_ready_reserves_a_place_until_it_is_spent_or_dropped() {
    let Bench { queue, .. } = bench(QueueConfig::default().records(1));
    let mut first = Spawn::new(queue.clone());
    let mut second = Spawn::new(queue);

    assert_ready_ok!(first.poll_ready());
    assert_ready_ok!(first.poll_ready(), "a second poll reserves no second place");
    assert_pending!(second.poll_ready());

    drop(first);
    assert!(second.is_woken(), "a dropped reservation must wake who waits");
    assert_ready_ok!(second.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn who_stopped_waiting_for_a_place_takes_no_wake_from_others() {
    let Bench { queue, .. } = bench(QueueConfig::default().records(1));
    let mut holder = Spawn::new(queue.clone());
    let mut gone = Spawn::new(queue.clone());
    let mut waiting = Spawn::new(queue);
    assert_ready_ok!(holder.poll_ready());
    assert_pending!(gone.poll_ready());
    assert_pending!(waiting.poll_ready());
    drop(gone);
    drop(holder);
    assert!(waiting.is_woken());
    assert_ready_ok!(waiting.poll_ready());
}

// I10: the place travels with the answer.
#[tokio::test(start_paused = true)]
async fn a_place_is_free_when_the_answer_is_taken() {
    let mut bench = bench(QueueConfig::default().records(1));
    let mut queue = Spawn::new(bench.queue.clone());
    assert_ready_ok!(queue.poll_ready());
    let mut response = task::spawn(queue.call(delivery(&bench.lease, 0)));
    assert_pending!(response.poll());
    assert_pending!(queue.poll_ready());

    bench.apply(&[0]).await;
    settle().await;
    assert!(response.is_woken(), "the answer must wake the future");
    assert_pending!(queue.poll_ready(), "the answer is given, but not taken");

    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Applied);
    assert!(queue.is_woken(), "a free place must wake who waits");
    assert_ready_ok!(queue.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_does_not_recall_the_delivery_and_frees_its_place_when_it_has_run() {
    let mut bench = bench(QueueConfig::default().records(1));
    let mut queue = Spawn::new(bench.queue.clone());
    drop(bench.send(0).await);
    assert_pending!(queue.poll_ready(), "it still waits");
    let reply = bench.expect(&[0]).await;
    assert_pending!(queue.poll_ready(), "it still runs");
    reply.send_response(applied(1));
    settle().await;
    assert!(queue.is_woken());
    assert_ready_ok!(queue.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_frees_its_place() {
    let mut bench = bench(QueueConfig::default().records(1));
    let mut queue = Spawn::new(bench.queue.clone());
    let response = bench.send(0).await;
    bench.apply(&[0]).await;
    settle().await;
    assert_pending!(queue.poll_ready());
    drop(response);
    assert!(queue.is_woken());
    assert_ready_ok!(queue.poll_ready());
}

// Q1: the bound is in bytes too.
#[tokio::test(start_paused = true)]
async fn bytes_bound_it_too() {
    let mut bench = bench(QueueConfig::default().bytes(10));
    let mut queue = Spawn::new(bench.queue.clone());
    // Seven bytes each: the second one was reserved below the bound.
    let first = bench.send(0).await;
    let _second = bench.send(1).await;
    assert_pending!(queue.poll_ready());

    bench.apply(&[0]).await;
    assert_eq!(done(first).await.unwrap(), Outcome::Applied);
    assert!(queue.is_woken());
    assert_ready_ok!(queue.poll_ready());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "`call` comes after `poll_ready` was ready")]
async fn a_clone_does_not_inherit_readiness() {
    let Bench { mut queue, lease, .. } = bench(QueueConfig::default());
    queue.ready().await.unwrap();
    let mut clone = queue.clone();
    drop(queue.call(delivery(&lease, 0)));
    drop(clone.call(delivery(&lease, 1)));
}

// Q3: a full queue is full by itself.
#[tokio::test(start_paused = true)]
async fn a_full_queue_does_not_hold_another_one() {
    let mut full = bench(QueueConfig::default().records(1));
    let mut other = bench(QueueConfig::default().records(1));
    let _response = full.send(0).await;
    assert_pending!(Spawn::new(full.queue.clone()).poll_ready());
    let response = other.send(0).await;
    other.apply(&[0]).await;
    assert_eq!(done(response).await.unwrap(), Outcome::Applied);
}

// ===== batches =====

/// A queue that was shown that larger batches cost nothing.
async fn warm(config: QueueConfig) -> Bench {
    let mut bench = bench(config);
    let mut offset = 0;
    for size in [1, 2, 4, 8] {
        let responses = bench.send_all(offset..offset + size).await;
        let offsets: Vec<_> = (offset..offset + size).collect();
        bench.apply(&offsets).await;
        classes(responses).await;
        offset += size;
    }
    bench
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_what_waits_when_the_lane_is_free() {
    let mut bench = warm(QueueConfig::default().batch_records(8)).await;
    let _first = bench.send(15).await;
    let reply = bench.expect(&[15]).await;
    let _rest = bench.send_all(16..26).await;
    bench.nothing_runs().await;

    reply.send_response(applied(1));
    bench.apply(&[16, 17, 18, 19, 20, 21, 22, 23]).await;
    bench.apply(&[24, 25]).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_bounded_in_bytes_but_for_one_record() {
    let mut bench = bench(QueueConfig::default().batch_bytes(20));
    let mut responses = bench.send_all(0..7).await;
    let large = Record::new(bench.lease.partition().clone(), 7, vec![0; 100]);
    let large = Delivery::new(bench.lease.clone(), large);
    responses.push(bench.queue.ready().await.unwrap().call(large));
    responses.push(bench.send(8).await);

    bench.apply(&[0]).await;
    // Of seven bytes each, two fit.
    bench.apply(&[1, 2]).await;
    bench.apply(&[3, 4]).await;
    bench.apply(&[5, 6]).await;
    bench.apply(&[7]).await;
    bench.apply(&[8]).await;
    assert_eq!(classes(responses).await, [Ok(Outcome::Applied); 9]);
}

#[tokio::test(start_paused = true)]
async fn batches_grow_while_that_pays_and_keep_to_the_time_bound() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let inner = service_fn({
        let sizes = Arc::clone(&sizes);
        move |batch: Batch<Delivery>| {
            sizes.lock().unwrap().push(batch.len());
            async move {
                time::sleep(Duration::from_millis(20 + 3 * batch.len() as u64)).await;
                // A connection was not to be had for a second.
                time::sleep(Duration::from_secs(1)).await;
                batch.waited(Duration::from_secs(1));
                Ok::<_, BoxError>(applied(batch.len()))
            }
        }
    });
    let mut queue = QueueLayer::by_key(QueueConfig::default()).layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let mut responses = Vec::new();
    for offset in 0..55 {
        responses.push(queue.ready().await.unwrap().call(delivery(&lease, offset)));
    }
    assert_eq!(classes(responses).await, [Ok(Outcome::Applied); 55]);
    // 10 records take 50 ms.
    assert_eq!(*sizes.lock().unwrap(), [1, 2, 4, 8, 10, 10, 10, 10]);
}

// ===== failures =====

#[tokio::test(start_paused = true)]
async fn a_poisoned_batch_is_halved_or_split_at_its_culprit_and_the_lane_stops_behind_it() {
    let mut bench = warm(QueueConfig::default()).await;
    let responses = bench.send_all(20..26).await;
    let culprit = delivery(&bench.lease, 22).culprit();

    // No culprit is named at first: the batch is halved.
    bench.fail(&[20, 21, 22, 23, 24, 25], poison()).await;
    bench.fail(&[20, 21, 22], poison().with_culprit(culprit)).await;
    bench.apply(&[20, 21]).await;
    bench.fail(&[22], poison()).await;
    bench.nothing_runs().await;

    let (ok, fenced) = (Ok(Outcome::Applied), Err(Class::Fenced));
    let expected = [ok, ok, Err(Class::Poison), fenced, fenced, fenced];
    assert_eq!(classes(responses).await, expected);
    let later = done(bench.send(26).await).await.unwrap_err();
    let QueueError::Halted(cause) = own(&later) else { panic!("{later:?}") };
    assert_eq!(cause.class(), Class::Poison, "and says what it waits for");
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_the_culprit_runs_after_it_was_decided() {
    let mut bench = warm(QueueConfig::default()).await;
    let responses = bench.send_all(20..24).await;
    let culprit = delivery(&bench.lease, 21).culprit();
    bench.fail(&[20, 21, 22, 23], poison().with_culprit(culprit)).await;
    bench.apply(&[20]).await;
    // A dead letter under the queue answers for it.
    bench.expect(&[21]).await.send_response(Outcomes::all(Outcome::Buried, 1));
    bench.apply(&[22, 23]).await;
    let ok = Ok(Outcome::Applied);
    assert_eq!(classes(responses).await, [ok, Ok(Outcome::Buried), ok, ok]);
}

#[tokio::test(start_paused = true)]
async fn a_culprit_of_another_partition_is_none_of_the_batch() {
    let mut bench = warm(QueueConfig::default()).await;
    let _responses = bench.send_all(20..22).await;
    let mut culprit = delivery(&bench.lease, 20).culprit();
    culprit.partition.partition += 1;
    bench.fail(&[20, 21], poison().with_culprit(culprit)).await;
    bench.apply(&[20]).await;
    bench.apply(&[21]).await;
}

#[tokio::test(start_paused = true)]
async fn other_failures_are_not_taken_apart_and_stop_the_lane() {
    for class in [Class::Transient, Class::Fenced, Class::Fatal] {
        let mut bench = warm(QueueConfig::default()).await;
        let responses = bench.send_all(20..22).await;
        let reply = bench.expect(&[20, 21]).await;
        let behind = bench.send_all(22..24).await;
        reply.send_error(Error::new(class, "no"));
        assert_eq!(classes(responses).await, [Err(class); 2]);
        assert_eq!(classes(behind).await, [Err(Class::Fenced); 2]);
        bench.nothing_runs().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_fails_the_batch() {
    let mut bench = bench(QueueConfig::default());
    bench.below.allow(0);
    let response = bench.send(0).await;
    bench.nothing_runs().await;
    bench.below.send_error(Error::new(Class::Fatal, "it is broken"));
    assert_eq!(done(response).await.unwrap_err().class(), Class::Fatal);
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_asked_for_its_readiness_with_a_batch_in_hand() {
    let mut bench = bench(QueueConfig::default());
    bench.below.allow(0);
    let response = bench.send(0).await;
    let _second = bench.send(1).await;
    bench.nothing_runs().await;
    bench.below.allow(1);
    bench.apply(&[0]).await;
    assert_eq!(done(response).await.unwrap(), Outcome::Applied);
    bench.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn too_few_outcomes_are_fatal() {
    let mut bench = bench(QueueConfig::default());
    let response = bench.send(0).await;
    bench.expect(&[0]).await.send_response(applied(2));
    let error = done(response).await.unwrap_err();
    assert_eq!(error.class(), Class::Fatal);
    assert!(matches!(own(&error), QueueError::Miscounted { deliveries: 1, outcomes: 2, .. }));
}

/// Panics where it is told to.
#[derive(Clone, Copy, Debug)]
enum Panics {
    WhenPolled,
    WhenCalled,
    Later,
}

impl Service<Batch<Delivery>> for Panics {
    type Response = Outcomes;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcomes, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        assert!(!matches!(self, Self::WhenPolled), "no account {}", 5);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, batch: Batch<Delivery>) -> Self::Future {
        let key = batch.first().record.key.clone();
        if key.is_some() {
            return Box::pin(async move { Ok(applied(batch.len())) });
        }
        assert!(!matches!(self, Self::WhenCalled), "no account {}", 5);
        Box::pin(async move { panic!("no account {}", 5) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_below_is_fatal_and_says_what_it_said() {
    for panics in [Panics::WhenPolled, Panics::WhenCalled, Panics::Later] {
        let mut queue = QueueLayer::by_key(QueueConfig::default()).layer(panics);
        let (_owner, lease) = lease();
        let first = queue.ready().await.unwrap().call(delivery(&lease, 0));
        let behind = queue.ready().await.unwrap().call(delivery(&lease, 1));
        let error = done(first).await.unwrap_err();
        assert_eq!(error.class(), Class::Fatal);
        let QueueError::Panicked { message, .. } = own(&error) else { panic!("{error:?}") };
        assert_eq!(message, "no account 5");
        let behind = done(behind).await.unwrap_err();
        assert!(matches!(own(&behind), QueueError::Halted(_)), "the lane stops");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_fail_and_panic_by_themselves() {
    let mut queue = QueueLayer::by_key(QueueConfig::default().lanes(64)).layer(Panics::Later);
    let (_owner, lease) = lease();
    let keyed = |key: &'static str, offset| {
        let record = Record::new(lease.partition().clone(), offset, "payload").with_key(key);
        Delivery::new(lease.clone(), record)
    };
    let failed = queue.ready().await.unwrap().call(delivery(&lease, 0));
    done(failed).await.unwrap_err();
    // Of 64 lanes, some are not that of the records without a key.
    let mut applied = 0;
    for (offset, key) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
        let response = queue.ready().await.unwrap().call(keyed(key, 1 + offset as i64));
        applied += usize::from(done(response).await.is_ok());
    }
    assert!(applied > 0);
}

// ===== the lease =====

// I5, D6: what waits is left to the next owner at once; what runs may finish.
#[tokio::test(start_paused = true)]
async fn a_drain_answers_what_waits_behind_a_running_batch_at_once() {
    let mut bench = warm(QueueConfig::default().lanes(4)).await;
    let mut running = task::spawn(bench.send(20).await);
    let reply = bench.expect(&[20]).await;
    let mut waiting = task::spawn(bench.send(21).await);
    assert_pending!(running.poll());
    assert_pending!(waiting.poll());

    bench.owner.drain();
    settle().await;
    assert!(waiting.is_woken(), "a drain must wake what waits");
    let error = assert_ready_err!(waiting.poll());
    assert_eq!(error.class(), Class::Fenced);
    assert!(matches!(own(&error), QueueError::Unstarted { state: LeaseState::Draining, .. }));

    // What comes now is answered at once, whatever its lane.
    for key in ["a", "b", "c", "d"] {
        let record = Record::new(bench.lease.partition().clone(), 22, "").with_key(key);
        let late = Delivery::new(bench.lease.clone(), record);
        let mut late = task::spawn(bench.queue.ready().await.unwrap().call(late));
        assert_ready_err!(late.poll());
    }

    reply.send_response(applied(1));
    settle().await;
    assert!(running.is_woken());
    assert_eq!(assert_ready_ok!(running.poll()), Outcome::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_is_seen_before_the_next_batch() {
    let terms = Terms { session: Some(Duration::from_secs(10)), ..Terms::default() };
    let partition = TopicPartition::new("transfers", 0);
    let (_owner, lease) = Lease::grant_on(partition, Epoch::new(1, "member"), terms);
    let mut bench = bench(QueueConfig::default());
    bench.lease = lease;
    let running = bench.send(0).await;
    let reply = bench.expect(&[0]).await;
    let waiting = bench.send(1).await;
    time::advance(Duration::from_secs(10)).await;
    reply.send_response(applied(1));
    assert_eq!(done(running).await.unwrap(), Outcome::Applied);
    let error = done(waiting).await.unwrap_err();
    assert!(matches!(own(&error), QueueError::Unstarted { state: LeaseState::Suspended, .. }));
    bench.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_batch_go_on_while_the_lease_is_held() {
    let mut bench = warm(QueueConfig::default()).await;
    let responses = bench.send_all(20..24).await;
    let reply = bench.expect(&[20, 21, 22, 23]).await;
    bench.owner.drain();
    reply.send_error(poison());
    let reply = bench.expect(&[20, 21]).await;
    bench.owner.lose();
    reply.send_response(applied(2));

    let (ok, fenced) = (Ok(Outcome::Applied), Err(Class::Fenced));
    assert_eq!(classes(responses).await, [ok, ok, fenced, fenced]);
    bench.nothing_runs().await;
}

// Q4: a queue serves one assignment, so that the keys of two topics never meet.
#[tokio::test(start_paused = true)]
async fn a_second_lease_is_refused() {
    let mut bench = bench(QueueConfig::default());
    let first = bench.send(0).await;
    let (_owner, other) = lease();
    bench.lease = other;
    let error = done(bench.send(1).await).await.unwrap_err();
    assert_eq!(error.class(), Class::Fatal);
    assert!(matches!(own(&error), QueueError::OtherLease { .. }));
    bench.apply(&[0]).await;
    assert_eq!(done(first).await.unwrap(), Outcome::Applied);
}

// X3 above the transaction: what a dropped queue was running is dropped.
#[tokio::test(start_paused = true)]
async fn a_dropped_queue_ends_its_lanes_and_answers() {
    let running = Arc::new(AtomicUsize::new(0));
    let inner = service_fn({
        let running = Arc::clone(&running);
        move |_: Batch<Delivery>| {
            running.fetch_add(1, Ordering::Relaxed);
            let guard = OnDrop(Arc::clone(&running));
            async move {
                let _guard = guard;
                pending::<Result<Outcomes, BoxError>>().await
            }
        }
    });
    let mut queue = QueueLayer::by_key(QueueConfig::default()).layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let first = queue.ready().await.unwrap().call(delivery(&lease, 0));
    let second = queue.ready().await.unwrap().call(delivery(&lease, 1));
    settle().await;
    assert_eq!(running.load(Ordering::Relaxed), 1);

    drop(queue);
    for response in [first, second] {
        let error = done(response).await.unwrap_err();
        assert_eq!(error.class(), Class::Fenced);
        assert!(matches!(own(&error), QueueError::Dropped));
    }
    assert_eq!(running.load(Ordering::Relaxed), 0);
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// ===== spans =====

#[tokio::test(start_paused = true)]
async fn a_batch_of_one_runs_in_the_span_of_its_delivery() {
    let _default = tracing::subscriber::set_default(tracing_subscriber::registry());
    let names = Arc::new(Mutex::new(Vec::new()));
    let inner = service_fn({
        let names = Arc::clone(&names);
        move |batch: Batch<Delivery>| {
            let name = tracing::Span::current().metadata().map(|it| it.name());
            names.lock().unwrap().push((batch.len(), name));
            async move { Ok::<_, BoxError>(applied(batch.len())) }
        }
    });
    let mut queue = QueueLayer::by_key(QueueConfig::default()).layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let assignment = tracing::info_span!("assignment").entered();
    let mut responses = Vec::new();
    for offset in 0..3 {
        let queue = queue.ready().await.unwrap();
        let _record = tracing::debug_span!("record", offset).entered();
        responses.push(queue.call(delivery(&lease, offset)));
    }
    drop(assignment);
    classes(responses).await;
    assert_eq!(*names.lock().unwrap(), [(1, Some("record")), (2, Some("assignment"))]);
}

#[test]
fn the_service_and_its_future_are_send() {
    fn check<T: Send>() {}
    check::<QueueService<Inner, ()>>();
    check::<ResponseFuture<()>>();
}
