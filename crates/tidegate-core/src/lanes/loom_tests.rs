//! Every interleaving of a source, a lane and a rebalance.

use std::{future::poll_fn, task::Waker};

use loom::{future::block_on, thread};

use super::{Answer, Context, Intake, Lane, Lanes, Pin, Volume};
use crate::{Class, Error, Outcome, Outcomes};

const MOST: Volume = Volume { records: 8, bytes: 1 << 20 };

fn lanes(records: usize) -> Lanes<()> {
    Lanes::new(1, Volume { records, ..MOST }, |_, _| {})
}

fn gone() -> Error {
    Error::new(Class::Fenced, "the queue is gone")
}

async fn send(intake: &mut Intake<()>) -> Answer<()> {
    poll_fn(|cx| intake.poll_reserve(cx)).await;
    intake.push(0, (), 7)
}

async fn outcome(answer: Answer<()>) -> Result<Outcome, Class> {
    answer.await.map_err(|error| error.class())
}

/// Applies at least so many deliveries, in whatever batches come.
async fn apply(mut lane: Lane<()>, mut deliveries: usize) {
    while deliveries > 0 {
        let taken = lane.take(MOST, &mut Vec::new()).await;
        if taken == 0 {
            return;
        }
        lane.answer(&Outcomes::all(Outcome::Applied, taken));
        // It takes what waits, which may be more.
        deliveries = deliveries.saturating_sub(taken);
    }
}

// A delivery wakes its lane, an answer its future, a free place its waiter.
#[test]
fn a_source_and_a_lane_never_miss_each_other() {
    loom::model(|| {
        let lanes = lanes(1);
        let lane = lanes.lane(0, gone());
        let lane = thread::spawn(move || block_on(apply(lane, 2)));
        let mut intake = lanes.intake();
        block_on(async {
            let first = send(&mut intake).await;
            assert_eq!(outcome(first).await, Ok(Outcome::Applied));
            // The place of the first one is needed.
            let second = send(&mut intake).await;
            assert_eq!(outcome(second).await, Ok(Outcome::Applied));
        });
        lane.join().unwrap();
    });
}

// An answer that is dropped while its delivery runs gives its place back.
#[test]
fn a_dropped_answer_never_keeps_its_place() {
    loom::model(|| {
        let lanes = lanes(1);
        let lane = lanes.lane(0, gone());
        let lane = thread::spawn(move || block_on(apply(lane, 1)));
        let mut intake = lanes.intake();
        let mut answer = block_on(send(&mut intake));
        let _ = Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop()));
        drop(answer);
        block_on(poll_fn(|cx| intake.poll_reserve(cx)));
        lane.join().unwrap();
    });
}

// A place that was reserved in vain is somebody else's.
#[test]
fn a_dropped_reservation_never_keeps_its_place() {
    loom::model(|| {
        let lanes = lanes(1);
        let mut holder = lanes.intake();
        block_on(poll_fn(|cx| holder.poll_reserve(cx)));
        let holder = thread::spawn(move || drop(holder));
        let mut intake = lanes.intake();
        block_on(poll_fn(|cx| intake.poll_reserve(cx)));
        holder.join().unwrap();
    });
}

// What a drain finds waiting, and what comes after it, is answered: by the lane
// that took it first, or by the drain. And the lane ends.
#[test]
fn closed_lanes_leave_nothing_without_an_answer() {
    loom::model(|| {
        let lanes = lanes(2);
        let lane = lanes.lane(0, gone());
        let lane = thread::spawn(move || block_on(apply(lane, usize::MAX)));
        let mut intake = lanes.intake();
        let rebalance = thread::spawn(move || lanes.close(&gone()));
        block_on(async {
            let answer = send(&mut intake).await;
            let outcome = outcome(answer).await;
            assert!(matches!(outcome, Ok(Outcome::Applied) | Err(Class::Fenced)));
        });
        lane.join().unwrap();
        rebalance.join().unwrap();
    });
}

// A lane that fails answers what it took, what waits and what comes.
#[test]
fn a_lane_that_ends_leaves_nothing_without_an_answer() {
    loom::model(|| {
        let lanes = lanes(2);
        let lane = lanes.lane(0, gone());
        let lane = thread::spawn(move || block_on(apply(lane, 1)));
        let mut intake = lanes.intake();
        block_on(async {
            let first = send(&mut intake).await;
            let second = send(&mut intake).await;
            assert_eq!(outcome(first).await, Ok(Outcome::Applied));
            assert!(matches!(outcome(second).await, Ok(Outcome::Applied) | Err(Class::Fenced)));
        });
        lane.join().unwrap();
    });
}
