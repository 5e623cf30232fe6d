//! The frontier's contract, driven poll by poll.

mod support;

use std::{
    future::Ready,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use tidegate_core::{Abandoned, Class, Delivery, Error, Frontier, OutOfOrder, Outcome};
use tidegate_frontier::{FrontierLayer, FrontierService, future::ResponseFuture};
use tidegate_testkit::Strict;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_test::mock::{self, Handle, Mock, Spawn};

use crate::support::{delivery, lease};

type Inner = Mock<Delivery, Outcome>;
type Response = task::Spawn<ResponseFuture<<Inner as Service<Delivery>>::Future>>;

fn stack(frontier: &Frontier) -> (Spawn<FrontierService<Inner>>, Handle<Delivery, Outcome>) {
    mock::spawn_layer(FrontierLayer::new(frontier.clone()))
}

fn call(stack: &mut Spawn<FrontierService<Inner>>, offset: i64) -> Response {
    assert_ready_ok!(stack.poll_ready());
    task::spawn(stack.call(delivery(&lease().1, offset)))
}

#[tokio::test]
async fn an_outcome_completes_the_ticket() {
    for outcome in Outcome::ALL {
        let frontier = Frontier::starting_at(0);
        let (mut stack, mut handle) = stack(&frontier);
        let mut response = call(&mut stack, 0);
        assert_pending!(response.poll());
        assert_eq!(frontier.offset(), 0, "nothing is durable yet");

        let (_, reply) = handle.next_request().await.unwrap();
        reply.send_response(outcome);
        assert!(response.is_woken(), "the answer must wake the future");
        assert_eq!(assert_ready_ok!(response.poll()).outcome(), outcome);
        assert_eq!(frontier.offset(), 1);
    }
}

// C1: complete 9 while 3..=8 are in flight, then close: 3 is committed.
#[tokio::test]
async fn an_answer_above_open_tickets_moves_nothing() {
    let frontier = Frontier::starting_at(3);
    let (mut stack, mut handle) = stack(&frontier);
    let mut responses: Vec<_> = (3..=9).map(|offset| call(&mut stack, offset)).collect();
    let mut last = None;
    for _ in 3..=9 {
        last = handle.next_request().await;
    }
    let (delivery, reply) = last.unwrap();
    assert_eq!(delivery.record.offset, 9);
    reply.send_response(Outcome::Applied);
    assert_ready_ok!(responses.pop().unwrap().poll());
    assert_eq!(frontier.close(), 3);
}

#[tokio::test]
async fn an_error_abandons_the_ticket_and_is_the_cause() {
    let frontier = Frontier::starting_at(0);
    let (mut stack, mut handle) = stack(&frontier);
    let mut response = call(&mut stack, 0);

    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_error(Error::new(Class::Poison, "no such account"));
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Poison);

    let standing = frontier.standing();
    assert_eq!((standing.offset, standing.in_flight), (0, 0));
    assert_eq!(frontier.failure().unwrap().class(), Class::Poison);
}

#[tokio::test]
async fn a_dropped_response_abandons_the_ticket() {
    let frontier = Frontier::starting_at(0);
    let (mut stack, _handle) = stack(&frontier);
    drop(call(&mut stack, 0));
    let failure = frontier.failure().unwrap();
    assert_eq!(failure.downcast_ref::<Abandoned>().unwrap().offset, 0);
    assert_eq!(frontier.standing().in_flight, 0);
}

// I2, C4: the log was cut, or the reader lost its place.
#[tokio::test]
async fn an_offset_that_goes_backwards_is_fatal_and_not_handed_down() {
    let frontier = Frontier::starting_at(7);
    let (mut stack, mut handle) = stack(&frontier);
    let error = assert_ready_err!(call(&mut stack, 3).poll());
    assert_eq!(error.class(), Class::Fatal);
    let out_of_order = error.downcast_ref::<OutOfOrder>().unwrap();
    assert_eq!((out_of_order.offset, out_of_order.next), (3, 7));
    assert_pending!(handle.poll_request());
    assert_eq!(frontier.offset(), 7);
}

// C9, C10: the lease ends while the work runs, and the answer comes later.
#[tokio::test]
async fn a_late_answer_changes_nothing_and_says_so() {
    let frontier = Frontier::starting_at(5);
    let (mut stack, mut handle) = stack(&frontier);
    let mut response = call(&mut stack, 5);
    let next = Frontier::starting_at(frontier.close());

    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_response(Outcome::Applied);
    assert!(assert_ready_ok!(response.poll()).is_late());
    assert_eq!((frontier.offset(), next.offset()), (5, 5));
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let (mut stack, mut handle) = stack(&Frontier::starting_at(0));
    handle.allow(0);
    assert_pending!(stack.poll_ready());
    handle.allow(1);
    assert!(stack.is_woken(), "the inner service's readiness must wake");
    assert_ready_ok!(stack.poll_ready());
}

#[tokio::test]
async fn an_error_of_readiness_keeps_its_class() {
    let (mut stack, mut handle) = stack(&Frontier::starting_at(0));
    handle.send_error(Error::new(Class::Fatal, "it is broken"));
    assert_eq!(assert_ready_err!(stack.poll_ready()).class(), Class::Fatal);
}

/// Answers at once, or panics.
#[derive(Clone, Debug)]
struct Inline {
    panics: bool,
}

impl Service<Delivery> for Inline {
    type Response = Outcome;
    type Error = Error;
    type Future = Ready<Result<Outcome, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Delivery) -> Self::Future {
        assert!(!self.panics, "the handler panicked");
        std::future::ready(Ok(Outcome::Applied))
    }
}

#[tokio::test]
async fn the_readied_inner_service_is_the_one_called() {
    let frontier = Frontier::starting_at(0);
    let mut stack =
        FrontierLayer::new(frontier.clone()).layer(Strict::new(Inline { panics: false }));
    let (_owner, lease) = lease();
    for offset in 0..2 {
        (&mut stack).oneshot(delivery(&lease, offset)).await.unwrap();
    }
    assert_eq!(frontier.offset(), 2);
}

#[tokio::test]
#[should_panic(expected = "`call` on a service that `poll_ready` did not ready")]
async fn a_clone_does_not_inherit_readiness() {
    let layer = FrontierLayer::new(Frontier::starting_at(0));
    let inner = Strict::new(Inline { panics: false });
    let mut ready = layer.layer(inner).ready_oneshot().await.unwrap();
    let mut clone = ready.clone();
    drop(ready.call(delivery(&lease().1, 0)));
    drop(clone.call(delivery(&lease().1, 1)));
}

#[test]
fn a_panic_in_the_inner_call_abandons_the_ticket() {
    let frontier = Frontier::starting_at(0);
    let mut stack = FrontierLayer::new(frontier.clone()).layer(Inline { panics: true });
    let delivery = delivery(&lease().1, 0);
    catch_unwind(AssertUnwindSafe(|| drop(stack.call(delivery)))).unwrap_err();
    assert_eq!(frontier.standing().in_flight, 0);
    assert_eq!(frontier.failure().unwrap().class(), Class::Fatal);
}

#[test]
fn the_future_is_send_if_the_inner_one_is() {
    fn check<T: Send>() {}
    check::<ResponseFuture<Ready<()>>>();
}
