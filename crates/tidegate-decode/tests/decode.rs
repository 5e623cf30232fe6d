//! The contract of decoding, driven poll by poll.

#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tidegate_core::{BoxError, Class, Delivery, Error, Record};
use tidegate_decode::{DecodeLayer, DecodeService, Undecodable};
use tidegate_testkit::Strict;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer as _, Service as _, ServiceExt, service_fn};
use tower_test::mock::{self, Handle, Mock, Spawn};

use crate::support::{delivery, lease};

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is odd")]
struct Odd(i64);

type Decode = fn(&Record) -> Result<i64, Odd>;
type Inner = Mock<Delivery<i64>, &'static str>;
type Stack = Spawn<DecodeService<Inner, Decode>>;

/// Takes even offsets.
fn half(record: &Record) -> Result<i64, Odd> {
    let offset = record.offset;
    if offset % 2 == 0 { Ok(offset / 2) } else { Err(Odd(offset)) }
}

fn stack() -> (Stack, Handle<Delivery<i64>, &'static str>) {
    mock::spawn_layer(DecodeLayer::new(half as Decode))
}

#[tokio::test]
async fn the_value_goes_on_with_its_record_and_lease() {
    let (mut stack, mut handle) = stack();
    let (_owner, lease) = lease();
    assert_ready_ok!(stack.poll_ready::<Delivery>());
    let mut response = task::spawn(stack.call(delivery(&lease, 8)));
    assert_pending!(response.poll());

    let (decoded, reply) = handle.next_request().await.unwrap();
    assert_eq!((decoded.value, decoded.record.offset), (4, 8));
    assert_eq!(*decoded.lease, lease);
    reply.send_response("done");
    assert!(response.is_woken(), "the answer must wake the future");
    assert_eq!(assert_ready_ok!(response.poll()), "done");
}

#[tokio::test]
async fn what_cannot_be_decoded_is_poison_and_names_the_record() {
    let (mut stack, mut handle) = stack();
    let delivery = delivery(&lease().1, 7);
    let culprit = delivery.culprit();
    assert_ready_ok!(stack.poll_ready::<Delivery>());
    let error = assert_ready_err!(task::spawn(stack.call(delivery)).poll());

    assert_eq!((error.class(), error.culprit()), (Class::Poison, Some(&culprit)));
    let undecodable: &Undecodable = error.downcast_ref().unwrap();
    assert_eq!(undecodable.cause.downcast_ref(), Some(&Odd(7)));
    assert_pending!(handle.poll_request(), "the inner service is not called");
}

#[tokio::test]
async fn the_reservation_of_what_did_not_decode_is_the_next_ones() {
    let (_owner, lease) = lease();
    let inner = service_fn(async |_: Delivery<i64>| Ok::<_, BoxError>(()));
    let mut stack = DecodeLayer::new(half as Decode).layer(Strict::new(inner));
    for (offset, decodes) in [(1, false), (2, true), (3, false), (4, true)] {
        let result = (&mut stack).oneshot(delivery(&lease, offset)).await;
        assert_eq!(result.is_ok(), decodes);
    }
}

#[tokio::test]
async fn a_dropped_response_drops_the_inner_one() {
    let held = Arc::new(());
    let inner = service_fn(|_: Delivery<i64>| {
        let held = Arc::clone(&held);
        async move { Ok::<_, BoxError>(pending::<Arc<()>>().await.max(held)) }
    });
    let mut stack = DecodeLayer::new(half as Decode).layer(inner);
    let response = stack.call(delivery(&lease().1, 0));
    assert_eq!(Arc::strong_count(&held), 2);
    drop(response);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let (mut stack, mut handle) = stack();
    handle.allow(0);
    assert_pending!(stack.poll_ready::<Delivery>());
    handle.allow(1);
    assert!(stack.is_woken(), "the inner service's readiness must wake");
    assert_ready_ok!(stack.poll_ready::<Delivery>());
}

#[tokio::test]
async fn the_inner_services_error_passes_through() {
    let (mut stack, mut handle) = stack();
    assert_ready_ok!(stack.poll_ready::<Delivery>());
    let mut response = task::spawn(stack.call(delivery(&lease().1, 0)));
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_error(Error::new(Class::Fatal, "it is broken"));
    assert_eq!(assert_ready_err!(response.poll()).class(), Class::Fatal);
}

#[tokio::test]
#[should_panic(expected = "`call` on a service that `poll_ready` did not ready")]
async fn a_clone_does_not_inherit_readiness() {
    let (_owner, lease) = lease();
    let inner = Strict::new(service_fn(async |_: Delivery<i64>| Ok::<_, BoxError>(())));
    let layer = DecodeLayer::new(half as Decode);
    let mut ready = ServiceExt::<Delivery>::ready_oneshot(layer.layer(inner)).await.unwrap();
    let mut clone = ready.clone();
    drop(ready.call(delivery(&lease, 0)));
    drop(clone.call(delivery(&lease, 2)));
}

#[tokio::test]
async fn a_panic_of_the_decoder_is_the_callers_and_leaves_the_service_whole() {
    let (_owner, lease) = lease();
    let decoder = |record: &Record| -> Result<i64, Odd> {
        assert!(record.offset != 1, "the decoder panicked");
        Ok(record.offset)
    };
    let inner = service_fn(async |_: Delivery<i64>| Ok::<_, BoxError>(()));
    let stack = DecodeLayer::new(decoder).layer(Strict::new(inner));
    let mut stack = ServiceExt::<Delivery>::ready_oneshot(stack).await.unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(stack.call(delivery(&lease, 1))))).unwrap_err();
    stack.call(delivery(&lease, 2)).await.unwrap();
}

#[test]
fn the_future_is_send_if_the_inner_one_is() {
    fn check<T: Send>(_: &T) {}
    let (_owner, lease) = lease();
    let inner = service_fn(async |_: Delivery<i64>| Ok::<_, BoxError>(()));
    check(&DecodeLayer::new(half as Decode).layer(inner).call(delivery(&lease, 0)));
}
