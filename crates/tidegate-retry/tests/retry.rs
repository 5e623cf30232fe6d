//! The contract of retries, driven poll by poll on a paused clock.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{sync::Arc, time::Duration};

use tidegate_core::{
    Batch, BoxError, Class, Condition, Delivery, Epoch, Error, Lease, LeaseOwner, Outcome,
    Outcomes, Terms, TopicPartition,
};
use tidegate_retry::{Backoff, RetryLayer, RetryService, future::ResponseFuture};
use tidegate_testkit::Strict;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service as _, ServiceExt, service_fn, timeout::TimeoutLayer};
use tower_test::mock::{self, Mock};

use crate::support::{delivery, lease};

type Inner = Strict<Mock<Batch<Delivery>, Outcomes>>;
type Handle = mock::Handle<Batch<Delivery>, Outcomes>;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(35);

struct Bench {
    stack: RetryService<Inner>,
    below: Handle,
    owner: LeaseOwner,
    lease: Lease,
}

fn bench() -> Bench {
    let (inner, below) = mock::pair();
    let layer = RetryLayer::new(Backoff::new(FIRST, LONGEST).with_jitter(0.0));
    let (owner, lease) = lease();
    Bench { stack: layer.layer(Strict::new(inner)), below, owner, lease }
}

impl Bench {
    async fn call(&mut self) -> (Batch<Delivery>, task::Spawn<ResponseFuture<Inner, ()>>) {
        let batch = Batch::of_one(delivery(&self.lease, 0));
        let stack = ServiceExt::<Batch<Delivery>>::ready(&mut self.stack);
        let response = stack.await.expect("the mock is ready").call(batch.clone());
        (batch, task::spawn(response))
    }

    async fn fail(&mut self, class: Class) {
        let (_, reply) = self.below.next_request().await.expect("the stack holds the mock");
        reply.send_error(Error::new(class, "no"));
    }

    async fn apply(&mut self) {
        let (_, reply) = self.below.next_request().await.expect("the stack holds the mock");
        reply.send_response(Outcomes::all(Outcome::Applied, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_tried_again_after_growing_waits() {
    let mut bench = bench();
    let (batch, mut response) = bench.call().await;
    assert_pending!(response.poll());
    for millis in [10, 20, 35, 35] {
        bench.fail(Class::Transient).await;
        assert!(response.is_woken());
        assert_pending!(response.poll());
        time::advance(Duration::from_millis(millis - 1)).await;
        assert!(!response.is_woken(), "it waits {millis} ms");
        time::advance(Duration::from_millis(1)).await;
        assert!(response.is_woken(), "the end of the wait must wake the future");
        assert_pending!(response.poll());
    }
    bench.apply().await;
    assert_eq!(assert_ready_ok!(response.poll()), Outcomes::all(Outcome::Applied, 1));
    assert_eq!(batch.time_waited(), Duration::from_millis(100), "and told the batch");
}

#[tokio::test(start_paused = true)]
async fn chance_adds_to_a_wait_and_makes_none_longer_than_the_longest() {
    let inner = service_fn(async |_: Batch<Delivery>| Err::<Outcomes, _>(BoxError::from("no")));
    let (owner, lease) = lease();
    for _ in 0..20 {
        let layer = RetryLayer::new(Backoff::new(FIRST, LONGEST).with_jitter(1.0));
        let batch = Batch::of_one(delivery(&lease, 0));
        let mut response = task::spawn(layer.layer(Strict::new(inner)).oneshot(batch.clone()));
        let mut waited = Vec::new();
        for _ in 0..3 {
            assert_pending!(response.poll());
            let started = Instant::now();
            while !response.is_woken() {
                time::advance(Duration::from_millis(1)).await;
            }
            waited.push(started.elapsed().as_millis());
        }
        // The clock goes by milliseconds, rounded up.
        let within = |nth: usize, shortest, longest| (shortest..=longest).contains(&waited[nth]);
        assert!(within(0, 10, 21) && within(1, 20, 36) && within(2, 35, 36), "{waited:?}");
    }
    drop(owner);
}

#[tokio::test(start_paused = true)]
async fn other_failures_pass_at_once() {
    for class in [Class::Poison, Class::Fenced, Class::Fatal] {
        let mut bench = bench();
        let (_, mut response) = bench.call().await;
        bench.fail(class).await;
        assert_eq!(assert_ready_err!(response.poll()).class(), class);
    }
}

// A drain is short: who waits between two tries does not wait on.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_wait_and_no_further_try_is_made() {
    let mut bench = bench();
    let (batch, mut response) = bench.call().await;
    bench.fail(Class::Transient).await;
    assert_pending!(response.poll());
    time::advance(Duration::from_millis(3)).await;

    bench.owner.drain();
    assert!(response.is_woken(), "a drain must wake the future");
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Transient);
    assert_pending!(bench.below.poll_request());
    assert_eq!(batch.time_waited(), Duration::from_millis(3));
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_a_drain_is_not_tried_again() {
    let mut bench = bench();
    let (_, mut response) = bench.call().await;
    bench.owner.drain();
    bench.fail(Class::Transient).await;
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Transient);
}

// The parts of a batch that is taken apart are first tries.
#[tokio::test(start_paused = true)]
async fn a_first_try_is_made_in_a_drain() {
    let mut bench = bench();
    bench.owner.drain();
    let (_, mut response) = bench.call().await;
    bench.apply().await;
    assert_eq!(assert_ready_ok!(response.poll()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_during_a_wait_is_seen_by_the_clock() {
    let mut bench = bench();
    let terms = Terms { session: Some(Duration::from_millis(5)), ..Terms::default() };
    let partition = TopicPartition::new("transfers", 0);
    let (_owner, lease) = Lease::grant_on(partition, Epoch::new(1, "member"), terms);
    bench.lease = lease;
    let (_, mut response) = bench.call().await;
    bench.fail(Class::Transient).await;
    assert_pending!(response.poll());
    time::advance(FIRST).await;
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Transient);
    assert_pending!(bench.below.poll_request());
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_the_lease_says_what_goes_on() {
    for (ends, condition) in [(None, Condition::Running), (Some(Class::Poison), Condition::Running)]
    {
        let mut bench = bench();
        let (_, mut response) = bench.call().await;
        bench.fail(Class::Transient).await;
        assert_pending!(response.poll());
        assert_eq!(bench.lease.condition(), Condition::Retrying);
        time::advance(FIRST).await;
        assert_pending!(response.poll());
        match ends {
            None => bench.apply().await,
            Some(class) => bench.fail(class).await,
        }
        assert!(response.poll().is_ready());
        assert_eq!(bench.lease.condition(), condition);
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_known_more_closely_is_left_standing() {
    let mut bench = bench();
    let (_, mut response) = bench.call().await;
    bench.lease.set_condition(Condition::DatabaseDown);
    bench.fail(Class::Transient).await;
    assert_pending!(response.poll());
    time::advance(FIRST).await;
    assert_pending!(response.poll());
    bench.apply().await;
    assert_eq!(assert_ready_ok!(response.poll()).len(), 1);
    assert_eq!(bench.lease.condition(), Condition::DatabaseDown, "who said it takes it back");
}

#[tokio::test(start_paused = true)]
async fn each_try_waits_for_readiness_of_its_own() {
    let mut bench = bench();
    let (_, mut response) = bench.call().await;
    bench.below.allow(0);
    bench.fail(Class::Transient).await;
    assert_pending!(response.poll());
    time::advance(FIRST).await;
    assert_pending!(response.poll());
    assert_pending!(bench.below.poll_request(), "it is not ready");
    bench.below.allow(1);
    assert!(response.is_woken(), "readiness must wake the future");
    assert_pending!(response.poll());
    bench.apply().await;
    assert_eq!(assert_ready_ok!(response.poll()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_the_inner_services() {
    let (mut stack, mut handle) =
        mock::spawn_layer::<Batch<Delivery>, Outcomes, _>(RetryLayer::new(Backoff::default()));
    handle.allow(0);
    assert_pending!(stack.poll_ready::<Batch<Delivery>>());
    handle.allow(1);
    assert!(stack.is_woken());
    assert_ready_ok!(stack.poll_ready::<Batch<Delivery>>());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "`call` on a service that `poll_ready` did not ready")]
async fn a_clone_does_not_inherit_readiness() {
    let mut bench = bench();
    let stack = ServiceExt::<Batch<Delivery>>::ready(&mut bench.stack).await.unwrap();
    let mut clone = stack.clone();
    let batch = Batch::of_one(delivery(&bench.lease, 0));
    drop(stack.call(batch.clone()));
    drop(clone.call(batch));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_drops_its_try() {
    let mut bench = bench();
    let (batch, response) = bench.call().await;
    let (request, _reply) = bench.below.next_request().await.unwrap();
    drop((response, request));
    let first = batch.first() as *const Delivery;
    let mut only = Vec::from_iter(batch.iter().cloned());
    drop(batch);
    assert_eq!(Arc::as_ptr(&only[0]), first);
    assert!(Arc::get_mut(&mut only[0]).is_some(), "nothing else holds the delivery");
}

// What nobody classified is tried again: a timeout of Tower's loses nothing.
#[tokio::test(start_paused = true)]
async fn a_timeout_under_it_is_tried_again() {
    let (inner, mut below) = mock::pair::<Batch<Delivery>, Outcomes>();
    let inner = TimeoutLayer::new(Duration::from_secs(1)).layer(Strict::new(inner));
    let stack = RetryLayer::new(Backoff::default()).layer(inner);
    let (_owner, lease) = lease();
    let response = tokio::spawn(stack.oneshot(Batch::of_one(delivery(&lease, 0))));
    let _unanswered = below.next_request().await.unwrap();
    let (_, reply) = below.next_request().await.unwrap();
    reply.send_response(Outcomes::all(Outcome::Applied, 1));
    assert_eq!(response.await.unwrap().unwrap(), Outcomes::all(Outcome::Applied, 1));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the handler panicked")]
async fn a_panic_of_the_inner_service_is_its_callers() {
    let inner = service_fn(async |_: Batch<Delivery>| -> Result<Outcomes, BoxError> {
        panic!("the handler panicked");
    });
    let stack = RetryLayer::new(Backoff::default()).layer(inner);
    let _ = stack.oneshot(Batch::of_one(delivery(&lease().1, 0))).await;
}

#[test]
fn the_future_is_send_if_the_inner_one_is() {
    fn check<T: Send>() {}
    check::<ResponseFuture<Inner, ()>>();
}
