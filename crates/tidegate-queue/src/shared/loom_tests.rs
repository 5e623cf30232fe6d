//! Every interleaving of a source, a lane and a rebalance.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Waker},
};

use loom::{future::block_on, thread};
use tidegate_core::{Class, Delivery, Epoch, Lease, LeaseOwner, Outcome, Record, TopicPartition};

use super::{Arc, Intake, Limits, Shared};
use crate::{QueueConfig, QueueError, future::ResponseFuture, metrics::Metrics};

const LIMITS: Limits = Limits { records: 8, bytes: 1 << 20 };

fn shared(records: usize) -> Arc<Shared<()>> {
    Arc::new(Shared::new(&QueueConfig::default().records(records), Metrics::new()))
}

fn lease() -> (LeaseOwner, Lease) {
    Lease::grant(TopicPartition::new("transfers", 0), Epoch::new(1, "member"))
}

fn delivery(lease: &Lease, offset: i64) -> Delivery {
    Delivery::new(lease.clone(), Record::new(lease.partition().clone(), offset, "payload"))
}

/// Sends one delivery, as `poll_ready` and `call` do.
async fn send(intake: &mut Intake<()>, lease: &Lease, offset: i64) -> ResponseFuture<()> {
    poll_fn(|cx| intake.poll_reserve(cx)).await;
    let slot = intake.push(0, delivery(lease, offset), None);
    ResponseFuture::new(Arc::clone(intake.shared()), slot)
}

/// Applies so many deliveries, in whatever batches come.
async fn apply(shared: &Shared<()>, mut deliveries: usize) {
    while deliveries > 0 {
        let mut slots = Vec::new();
        let taken = poll_fn(|cx| shared.poll_take(0, LIMITS, &mut slots, cx)).await;
        deliveries -= taken.map_or(deliveries, |taken| taken.deliveries.len());
        shared.answer(&slots, slots.iter().map(|_| Outcome::Applied), &mut Vec::new());
    }
}

// A delivery wakes its lane, an answer its future, a free place its waiter.
#[test]
fn a_source_and_a_lane_never_miss_each_other() {
    loom::model(|| {
        let shared = shared(1);
        let lane = thread::spawn({
            let shared = Arc::clone(&shared);
            move || block_on(apply(&shared, 2))
        });
        let (_owner, lease) = lease();
        let mut intake = Intake::new(shared);
        block_on(async {
            let first = send(&mut intake, &lease, 0).await;
            assert_eq!(first.await.map_err(|error| error.class()), Ok(Outcome::Applied));
            // The place of the first one is needed.
            let second = send(&mut intake, &lease, 1).await;
            assert_eq!(second.await.map_err(|error| error.class()), Ok(Outcome::Applied));
        });
        lane.join().unwrap();
    });
}

// A response that is dropped while its delivery runs gives its place back.
#[test]
fn a_dropped_response_never_keeps_its_place() {
    loom::model(|| {
        let shared = shared(1);
        let lane = thread::spawn({
            let shared = Arc::clone(&shared);
            move || block_on(apply(&shared, 1))
        });
        let (_owner, lease) = lease();
        let mut intake = Intake::new(Arc::clone(&shared));
        let mut response = block_on(send(&mut intake, &lease, 0));
        let _ = Pin::new(&mut response).poll(&mut Context::from_waker(Waker::noop()));
        drop(response);
        block_on(poll_fn(|cx| intake.poll_reserve(cx)));
        lane.join().unwrap();
    });
}

// What a drain finds waiting, and what comes after it, is answered: by the lane
// that took it first, or by the fence.
#[test]
fn a_fence_leaves_nothing_without_an_answer() {
    loom::model(|| {
        let shared = shared(2);
        let (_owner, lease) = lease();
        let lane = thread::spawn({
            let shared = Arc::clone(&shared);
            move || block_on(apply(&shared, usize::MAX))
        });
        let rebalance = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.fence(&[], &QueueError::Dropped.into())
        });
        let mut intake = Intake::new(shared);
        block_on(async {
            let answer = send(&mut intake, &lease, 0).await.await;
            let class = answer.map_err(|error| error.class());
            assert!(matches!(class, Ok(Outcome::Applied) | Err(Class::Fenced)));
        });
        lane.join().unwrap();
        rebalance.join().unwrap();
    });
}

// The one that watches the lease learns of it from the first delivery.
#[test]
fn the_watch_never_misses_the_lease() {
    loom::model(|| {
        let shared = shared(1);
        let (_owner, lease) = lease();
        let watch = thread::spawn({
            let (shared, lease) = (Arc::clone(&shared), lease.clone());
            move || assert!(block_on(poll_fn(|cx| shared.poll_lease(cx))) == lease)
        });
        let mut intake = Intake::new(shared);
        drop(block_on(send(&mut intake, &lease, 0)));
        watch.join().unwrap();
    });
}
