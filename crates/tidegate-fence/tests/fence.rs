//! The fence's contract, driven poll by poll on a paused clock.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    future::{Ready, pending},
    sync::Arc,
    time::Duration,
};

use tidegate_core::{
    BoxError, Class, Delivery, Epoch, Error, IntoError, Lease, LeaseOwner, LeaseState, Terms,
    TopicPartition,
};
use tidegate_fence::{FenceLayer, Refused};
use tidegate_testkit::Strict;
use tokio::time;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_test::mock;

use crate::support::{delivery, lease};

#[track_caller]
fn check(end: impl FnOnce(&LeaseOwner), state: LeaseState) {
    let (owner, lease) = lease();
    let (mut fence, mut handle) =
        mock::spawn_layer::<Delivery, (), _>(FenceLayer::new(lease.clone()));
    end(&owner);

    assert_ready_ok!(fence.poll_ready::<Delivery>());
    let error: Error = assert_ready_err!(task::spawn(fence.call(delivery(&lease, 0))).poll());
    assert_eq!(error.class(), Class::Fenced);
    assert_eq!(error.downcast_ref::<Refused>().expect("a fence refuses with this").state, state);
    assert_pending!(handle.poll_request(), "the inner service is not called");
}

// D6: what comes for a revoked partition is not begun.
#[tokio::test(start_paused = true)]
async fn a_delivery_is_refused_in_each_state_but_active() {
    check(LeaseOwner::drain, LeaseState::Draining);
    check(LeaseOwner::suspend, LeaseState::Suspended);
    check(LeaseOwner::release, LeaseState::Released);
    check(LeaseOwner::lose, LeaseState::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_is_seen_by_the_clock() {
    let terms = Terms { session: Some(Duration::from_secs(10)), ..Terms::default() };
    let partition = TopicPartition::new("transfers", 0);
    let (_owner, lease) = Lease::grant_on(partition, Epoch::new(1, "member"), terms);
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(()));
    let fence = FenceLayer::new(lease.clone()).layer(inner);

    time::advance(Duration::from_millis(9_999)).await;
    fence.clone().oneshot(delivery(&lease, 0)).await.unwrap();
    time::advance(Duration::from_millis(1)).await;
    let error = fence.oneshot(delivery(&lease, 1)).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Refused>().unwrap().state, LeaseState::Suspended);
}

#[tokio::test(start_paused = true)]
async fn what_was_let_through_goes_on_while_the_lease_drains() {
    let (owner, lease) = lease();
    let (mut fence, mut handle) = mock::spawn_layer(FenceLayer::new(lease.clone()));
    assert_ready_ok!(fence.poll_ready());
    let mut response = task::spawn(fence.call(delivery(&lease, 0)));
    assert_pending!(response.poll());
    owner.drain();

    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_response("done");
    assert!(response.is_woken(), "the answer must wake the future");
    assert_eq!(assert_ready_ok!(response.poll()), "done");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_drops_the_inner_one() {
    let (_owner, lease) = lease();
    let held = Arc::new(());
    let inner = service_fn(|_: Delivery| {
        let held = Arc::clone(&held);
        async move { Ok::<_, BoxError>(pending::<Arc<()>>().await.max(held)) }
    });
    let response = FenceLayer::new(lease.clone()).layer(inner).call(delivery(&lease, 0));
    assert_eq!(Arc::strong_count(&held), 2);
    drop(response);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_the_inner_services() {
    let (_owner, lease) = lease();
    let (mut fence, mut handle) = mock::spawn_layer::<Delivery, (), _>(FenceLayer::new(lease));
    handle.allow(0);
    assert_pending!(fence.poll_ready::<Delivery>());
    handle.allow(1);
    assert!(fence.is_woken(), "the inner service's readiness must wake");
    assert_ready_ok!(fence.poll_ready::<Delivery>());
}

#[tokio::test(start_paused = true)]
async fn the_inner_services_error_passes_through() {
    let (_owner, lease) = lease();
    let (mut fence, mut handle) =
        mock::spawn_layer::<Delivery, (), _>(FenceLayer::new(lease.clone()));
    assert_ready_ok!(fence.poll_ready());
    let mut response = task::spawn(fence.call(delivery(&lease, 0)));
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_error(Error::new(Class::Poison, "no such account"));
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Poison);
}

#[tokio::test]
async fn the_readied_inner_service_is_the_one_called() {
    let (_owner, lease) = lease();
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(()));
    let mut fence = FenceLayer::new(lease.clone()).layer(Strict::new(inner));
    for offset in 0..2 {
        (&mut fence).oneshot(delivery(&lease, offset)).await.unwrap();
    }
}

#[tokio::test]
#[should_panic(expected = "`call` on a service that `poll_ready` did not ready")]
async fn a_clone_does_not_inherit_readiness() {
    let (_owner, lease) = lease();
    let inner = Strict::new(service_fn(async |_: Delivery| Ok::<_, BoxError>(())));
    let mut ready = FenceLayer::new(lease.clone()).layer(inner).ready_oneshot().await.unwrap();
    let mut clone = ready.clone();
    drop(ready.call(delivery(&lease, 0)));
    drop(clone.call(delivery(&lease, 1)));
}

#[tokio::test]
#[should_panic(expected = "the handler panicked")]
async fn a_panic_of_the_inner_service_is_its_callers() {
    let (_owner, lease) = lease();
    let inner = service_fn(async |_: Delivery| -> Result<(), BoxError> {
        panic!("the handler panicked");
    });
    let fence = FenceLayer::new(lease.clone()).layer(inner);
    let _ = fence.oneshot(delivery(&lease, 0)).await;
}

#[test]
fn the_future_is_send_if_the_inner_one_is() {
    fn check<T: Send>() {}
    check::<IntoError<Ready<()>>>();
}
