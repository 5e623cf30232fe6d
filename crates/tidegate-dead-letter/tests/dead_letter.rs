//! The contract of dead letters in both places, driven poll by poll.

mod letters;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use tidegate_core::{
    Batch, BoxError, Class, Delivery, Error, Frontier, Lease, LeaseOwner, LeaseState, Outcome,
    Outcomes,
};
use tidegate_dead_letter::{DeadLetterLayer, DeadLetterService, NotHeld, future::ResponseFuture};
use tidegate_testkit::Strict;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service, ServiceExt, service_fn};
use tower_test::mock::{self, Mock, Spawn};

use crate::{
    letters::Letters,
    support::{delivery, lease},
};

const START: i64 = 5;

type Below<R, P> = Strict<Mock<R, P>>;
type Stack<R, P> = Spawn<DeadLetterService<Below<R, P>, Letters>>;
type Response<R, P> = task::Spawn<ResponseFuture<<Below<R, P> as Service<R>>::Future, Letters, P>>;

struct Bench<R, P> {
    stack: Stack<R, P>,
    below: mock::Handle<R, P>,
    letters: Letters,
    owner: LeaseOwner,
    lease: Lease,
}

/// A stack that knows what is buried, and a store that waits to be told.
fn bench<R: Send + 'static, P: Send + 'static>(buried: &[i64]) -> Bench<R, P>
where
    DeadLetterService<Below<R, P>, Letters>: Service<R, Error = Error>,
{
    let letters = Letters::with(buried, 1);
    let (owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters.clone(), &lease, &Frontier::starting_at(START));
    let (inner, below) = mock::pair();
    let mut stack = Spawn::new(layer.layer(Strict::new(inner)));
    assert_ready_ok!(stack.poll_ready(), "the store has an answer");
    Bench { stack, below, letters, owner, lease }
}

impl Bench<Delivery, Outcome> {
    fn call(&mut self, offset: i64) -> Response<Delivery, Outcome> {
        assert_ready_ok!(self.stack.poll_ready());
        task::spawn(self.stack.call(delivery(&self.lease, offset)))
    }

    async fn fail(&mut self, error: Error) {
        let (_, reply) = self.below.next_request().await.expect("the stack holds the mock");
        reply.send_error(error);
    }
}

impl Bench<Batch<Delivery>, Outcomes> {
    fn call(&mut self, offsets: &[i64]) -> Response<Batch<Delivery>, Outcomes> {
        assert_ready_ok!(self.stack.poll_ready());
        task::spawn(self.stack.call(batch(&self.lease, offsets)))
    }

    async fn expect(&mut self, offsets: &[i64]) -> mock::SendResponse<Outcomes> {
        let (batch, reply) = self.below.next_request().await.expect("the stack holds the mock");
        let got: Vec<_> = batch.iter().map(|delivery| delivery.record.offset).collect();
        assert_eq!(got, offsets);
        reply
    }
}

fn batch(lease: &Lease, offsets: &[i64]) -> Batch<Delivery> {
    let deliveries = offsets.iter().map(|offset| delivery(lease, *offset).into());
    Batch::new(deliveries.collect()).expect("a test sends something")
}

fn poison() -> Error {
    Error::new(Class::Poison, "no such account")
}

type Single = Bench<Delivery, Outcome>;
type Batched = Bench<Batch<Delivery>, Outcomes>;

// ===== above decoding =====

#[tokio::test]
async fn poison_is_buried_once_it_is_stored() {
    let mut bench: Single = bench(&[]);
    let mut response = bench.call(7);
    assert_pending!(response.poll());
    bench.fail(poison()).await;
    assert!(response.is_woken());
    assert_pending!(response.poll(), "the store does not answer");
    assert_eq!(bench.letters.offsets(), [] as [i64; 0]);

    bench.letters.answer();
    assert!(response.is_woken(), "the store's answer must wake the future");
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Buried);
    assert_eq!(bench.letters.offsets(), [7]);
}

// I14: nothing overtakes the decision.
#[tokio::test]
async fn it_is_not_ready_while_a_burial_is_undecided() {
    let mut bench: Single = bench(&[]);
    let (mut first, mut second) = (bench.call(7), bench.call(8));
    for response in [&mut first, &mut second] {
        bench.fail(poison()).await;
        assert_pending!(response.poll());
    }
    assert_pending!(bench.stack.poll_ready());
    bench.letters.answer();
    assert_eq!(assert_ready_ok!(first.poll()), Outcome::Buried);
    assert_pending!(bench.stack.poll_ready(), "there is the other one");
    bench.letters.answer();
    assert_eq!(assert_ready_ok!(second.poll()), Outcome::Buried);
    assert!(bench.stack.is_woken(), "the last decision must wake who waits");
    assert_ready_ok!(bench.stack.poll_ready());
}

#[tokio::test]
async fn a_burial_that_is_dropped_is_decided_by_nobody_and_holds_nobody() {
    let mut bench: Single = bench(&[]);
    let mut response = bench.call(7);
    bench.fail(poison()).await;
    assert_pending!(response.poll());
    assert_pending!(bench.stack.poll_ready());
    drop(response);
    assert!(bench.stack.is_woken(), "the drop must wake who waits");
    assert_ready_ok!(bench.stack.poll_ready());
    assert_eq!(bench.letters.offsets(), [] as [i64; 0]);
}

#[tokio::test]
async fn a_store_that_fails_leaves_its_class_and_opens_again() {
    let mut bench: Single = bench(&[]);
    let mut response = bench.call(7);
    bench.fail(poison()).await;
    bench.letters.fail(true);
    bench.letters.answer();
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Transient);
    assert_ready_ok!(bench.stack.poll_ready());
}

#[tokio::test]
async fn other_failures_and_answers_pass() {
    let mut bench: Single = bench(&[]);
    for class in [Class::Transient, Class::Fenced, Class::Fatal] {
        let mut response = bench.call(7);
        bench.fail(Error::new(class, "no")).await;
        assert_eq!(assert_ready_err!(response.poll()).class(), class);
    }
    let mut response = bench.call(8);
    let (_, reply) = bench.below.next_request().await.unwrap();
    reply.send_response(Outcome::Duplicate);
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Duplicate);
}

#[tokio::test]
async fn nothing_is_buried_under_a_lease_that_is_not_held() {
    let mut bench: Single = bench(&[]);
    bench.letters.answer();
    let mut response = bench.call(7);
    bench.fail(poison()).await;
    bench.owner.lose();
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.class(), Class::Fenced);
    assert_eq!(error.downcast_ref::<NotHeld>().unwrap().state, LeaseState::Lost);
    assert_eq!(bench.letters.offsets(), [] as [i64; 0]);
}

#[tokio::test]
async fn a_drain_does_not_stop_a_burial() {
    let mut bench: Single = bench(&[]);
    bench.letters.answer();
    let mut response = bench.call(7);
    bench.fail(poison()).await;
    bench.owner.drain();
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Buried);
}

#[tokio::test]
async fn poison_that_blames_another_record_buries_nobody() {
    let mut bench: Single = bench(&[]);
    let other = delivery(&bench.lease, 6).culprit();
    let mut response = bench.call(7);
    bench.fail(poison().with_culprit(other)).await;
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Poison);
    let own = delivery(&bench.lease, 8).culprit();
    let mut response = bench.call(8);
    bench.fail(poison().with_culprit(own)).await;
    bench.letters.answer();
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Buried);
}

// ===== what was buried before =====

#[tokio::test]
async fn the_first_readiness_asks_what_is_buried_and_waits_for_it() {
    let letters = Letters::with(&[3, 7], 0);
    let (_owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters.clone(), &lease, &Frontier::starting_at(START));
    let (inner, mut below) = mock::pair::<Delivery, Outcome>();
    let mut stack = Spawn::new(layer.layer(Strict::new(inner)));
    assert_pending!(stack.poll_ready());
    letters.answer();
    assert!(stack.is_woken(), "the store's answer must wake who waits");
    assert_ready_ok!(stack.poll_ready());
    assert_eq!(letters.asked(), [(lease.partition().clone(), START)]);

    let mut response = task::spawn(stack.call(delivery(&lease, 7)));
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Buried);
    assert_pending!(below.poll_request(), "it is not tried again");

    assert_ready_ok!(stack.poll_ready());
    let _response = stack.call(delivery(&lease, 8));
    assert!(below.poll_request().is_ready());
    assert_eq!(letters.asked().len(), 1);
}

#[tokio::test]
async fn a_store_that_does_not_say_fails_the_next_delivery_and_is_asked_again() {
    let letters = Letters::with(&[7], 1);
    letters.fail(true);
    let (_owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters.clone(), &lease, &Frontier::starting_at(START));
    let (inner, mut below) = mock::pair::<Delivery, Outcome>();
    let mut stack = Spawn::new(layer.layer(Strict::new(inner)));
    assert_ready_ok!(stack.poll_ready(), "an error of readiness would be final");
    assert_ready_ok!(stack.poll_ready());
    let error = assert_ready_err!(task::spawn(stack.call(delivery(&lease, 7))).poll());
    assert_eq!(error.class(), Class::Transient);
    assert_pending!(below.poll_request());

    letters.fail(false);
    letters.answer();
    assert_ready_ok!(stack.poll_ready());
    let mut response = task::spawn(stack.call(delivery(&lease, 7)));
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Buried);
    assert_eq!(letters.asked().len(), 2);
}

#[tokio::test]
async fn clones_of_a_layer_and_of_a_service_ask_once() {
    let letters = Letters::with(&[7], 1);
    let (_owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters.clone(), &lease, &Frontier::starting_at(START));
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(Outcome::Applied));
    let stack = layer.clone().layer(Strict::new(inner));
    stack.clone().oneshot(delivery(&lease, 7)).await.map(drop).unwrap();
    stack.oneshot(delivery(&lease, 7)).await.map(drop).unwrap();
    let other = layer.layer(service_fn(async |_: Batch<Delivery>| {
        Ok::<_, BoxError>(Outcomes::all(Outcome::Applied, 1))
    }));
    let outcomes = other.oneshot(batch(&lease, &[7])).await.unwrap();
    assert_eq!(outcomes, Outcomes::all(Outcome::Buried, 1));
    assert_eq!(letters.asked().len(), 1);
}

// ===== under the queue =====

#[tokio::test]
async fn poison_of_a_batch_of_one_is_buried() {
    let mut bench: Batched = bench(&[]);
    let mut response = bench.call(&[7]);
    bench.expect(&[7]).await.send_error(poison());
    assert_pending!(response.poll());
    bench.letters.answer();
    assert!(response.is_woken());
    assert_eq!(assert_ready_ok!(response.poll()), Outcomes::all(Outcome::Buried, 1));
    assert_eq!(bench.letters.offsets(), [7]);
}

#[tokio::test]
async fn poison_of_more_than_one_passes_for_the_queue_to_take_apart() {
    let mut bench: Batched = bench(&[]);
    let culprit = delivery(&bench.lease, 7).culprit();
    let mut response = bench.call(&[7, 8]);
    bench.expect(&[7, 8]).await.send_error(poison().with_culprit(culprit.clone()));
    let error = assert_ready_err!(response.poll());
    assert_eq!((error.class(), error.culprit()), (Class::Poison, Some(&culprit)));
    assert_eq!(bench.letters.offsets(), [] as [i64; 0]);
}

#[tokio::test]
async fn what_was_buried_before_is_left_out_of_a_batch_and_answered_in_its_place() {
    let mut bench: Batched = bench(&[6, 8, 9]);
    let mut response = bench.call(&[5, 6, 7, 8, 10]);
    let outcomes = [Outcome::Applied, Outcome::Stale, Outcome::Duplicate];
    bench.expect(&[5, 7, 10]).await.send_response(outcomes.into_iter().collect());
    let [applied, stale, duplicate] = outcomes;
    let expected = [applied, Outcome::Buried, stale, Outcome::Buried, duplicate];
    assert_eq!(assert_ready_ok!(response.poll()), expected.into_iter().collect());

    // One is left, so it is known who is at fault.
    let mut response = bench.call(&[8, 9, 11]);
    bench.expect(&[11]).await.send_error(poison());
    bench.letters.answer();
    assert_eq!(assert_ready_ok!(response.poll()), Outcomes::all(Outcome::Buried, 3));
    assert_eq!(bench.letters.offsets(), [6, 8, 9, 11]);
}

#[tokio::test]
async fn a_burial_of_one_lane_does_not_hold_the_others() {
    let mut bench: Batched = bench(&[]);
    let mut other = Spawn::new(bench.stack.get_ref().clone());
    let mut response = bench.call(&[7]);
    bench.expect(&[7]).await.send_error(poison());
    assert_pending!(response.poll(), "the store does not answer");
    assert_ready_ok!(other.poll_ready());
}

#[tokio::test]
async fn a_batch_of_which_all_is_buried_is_not_tried() {
    let mut bench: Batched = bench(&[6, 8]);
    let mut response = bench.call(&[6, 8]);
    assert_eq!(assert_ready_ok!(response.poll()), Outcomes::all(Outcome::Buried, 2));
    assert_pending!(bench.below.poll_request());
}

#[tokio::test]
async fn nothing_of_a_batch_is_buried_under_a_lease_that_is_not_held() {
    let mut bench: Batched = bench(&[]);
    bench.letters.answer();
    let mut response = bench.call(&[7]);
    bench.expect(&[7]).await.send_error(poison());
    bench.owner.suspend();
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Fenced);
    assert_eq!(bench.letters.offsets(), [] as [i64; 0]);
}

// ===== readiness =====

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let mut bench: Single = bench(&[]);
    drop(bench.call(5));
    bench.below.allow(0);
    assert_pending!(bench.stack.poll_ready());
    bench.below.allow(1);
    assert!(bench.stack.is_woken(), "the inner service's readiness must wake");
    assert_ready_ok!(bench.stack.poll_ready());
}

#[tokio::test]
#[should_panic(expected = "`call` on a service that `poll_ready` did not ready")]
async fn a_clone_does_not_inherit_readiness() {
    let letters = Letters::with(&[], 1);
    let (_owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters, &lease, &Frontier::starting_at(START));
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(Outcome::Applied));
    let mut stack = layer.layer(Strict::new(inner));
    let ready = ServiceExt::<Delivery>::ready(&mut stack).await.unwrap();
    let mut clone = ready.clone();
    drop(ready.call(delivery(&lease, 7)));
    drop(clone.call(delivery(&lease, 8)));
}

#[tokio::test]
#[should_panic(expected = "the handler panicked")]
async fn a_panic_of_the_inner_service_is_its_callers() {
    let letters = Letters::with(&[], 1);
    let (_owner, lease) = lease();
    let layer = DeadLetterLayer::new(letters, &lease, &Frontier::starting_at(START));
    let inner = service_fn(async |_: Delivery| -> Result<Outcome, BoxError> {
        panic!("the handler panicked");
    });
    let _ = layer.layer(inner).oneshot(delivery(&lease, 7)).await;
}

#[test]
fn the_service_and_its_futures_are_send() {
    fn check<T: Send>() {}
    check::<DeadLetterService<Below<Delivery, Outcome>, Letters>>();
    check::<Response<Delivery, Outcome>>();
    check::<Response<Batch<Delivery>, Outcomes>>();
}
