use std::time::Duration;

use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use super::{Epoch, Lease, LeaseOwner, LeaseState, Terms};
use crate::TopicPartition;

const SESSION: Duration = Duration::from_secs(10);

fn lease() -> (LeaseOwner, Lease) {
    let terms = Terms { session: Some(SESSION), ..Terms::default() };
    Lease::grant_on(TopicPartition::new("t", 0), Epoch::new(1, "m"), terms)
}

#[track_caller]
fn check(steps: &[fn(&LeaseOwner)], expected: LeaseState) {
    let (owner, lease) = Lease::grant(TopicPartition::new("t", 0), Epoch::new(1, "m"));
    steps.iter().for_each(|step| step(&owner));
    assert_eq!(lease.state(), expected);
}

#[test]
fn a_state_never_goes_backwards() {
    use LeaseOwner as O;
    check(&[], LeaseState::Active);
    check(&[O::drain], LeaseState::Draining);
    check(&[O::suspend, O::drain], LeaseState::Suspended);
    check(&[O::drain, O::release, O::lose], LeaseState::Released);
    check(&[O::lose, O::release], LeaseState::Lost);
    check(&[O::suspend, O::release], LeaseState::Released);
    check(&[O::suspend, O::lose, O::suspend], LeaseState::Lost);
}

#[test]
fn a_dropped_owner_has_lost_the_lease() {
    let (owner, lease) = Lease::grant(TopicPartition::new("t", 0), Epoch::new(1, "m"));
    drop(owner);
    assert_eq!(lease.state(), LeaseState::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_proof_is_over_by_the_clock() {
    let (_owner, lease) = lease();
    time::advance(SESSION - Duration::from_millis(1)).await;
    assert!(lease.is_active());
    time::advance(Duration::from_millis(1)).await;
    assert_eq!(lease.state(), LeaseState::Suspended);
    assert!(!lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_proof_counts_from_when_it_was_sent() {
    let (owner, lease) = lease();
    time::advance(Duration::from_secs(4)).await;
    let sent = Instant::now();
    time::advance(Duration::from_secs(5)).await;
    assert!(owner.prove(sent));
    assert_eq!((lease.proof(), owner.time_left()), (sent, Some(Duration::from_secs(5))));
    time::advance(Duration::from_secs(5)).await;
    assert!(!lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_late_proof_does_not_bring_a_lease_back() {
    let (owner, lease) = lease();
    time::advance(Duration::from_secs(5)).await;
    let sent = Instant::now();
    time::advance(Duration::from_secs(5)).await;
    assert_eq!(lease.state(), LeaseState::Suspended, "somebody saw it end");
    assert!(!owner.prove(sent));
    assert_eq!(lease.state(), LeaseState::Suspended);
    assert_eq!(owner.time_left(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_old_proof_does_not_shorten_a_lease() {
    let (owner, lease) = lease();
    let early = Instant::now();
    time::advance(Duration::from_secs(5)).await;
    assert!(owner.prove(Instant::now()));
    assert!(owner.prove(early));
    assert_eq!(owner.time_left(), Some(SESSION));
    owner.extend(Instant::now() + SESSION * 2);
    assert_eq!(owner.time_left(), Some(SESSION * 2));
    assert!(lease.is_active());
}

#[tokio::test(start_paused = true)]
async fn changes_and_proofs_wake_who_waits() {
    let (owner, lease) = lease();
    let mut draining = task::spawn(lease.reached(LeaseState::Draining));
    let mut changed = task::spawn(lease.changed());
    assert_pending!(draining.poll());
    assert_pending!(changed.poll());

    owner.prove(Instant::now());
    assert!(changed.is_woken());
    assert_ready!(changed.poll());
    assert_pending!(draining.poll());

    owner.drain();
    assert!(draining.is_woken());
    assert_ready!(draining.poll());
}

#[tokio::test(start_paused = true)]
async fn who_sees_it_end_wakes_who_waits() {
    let (_owner, lease) = lease();
    let mut held = task::spawn(lease.reached(LeaseState::Suspended));
    assert_pending!(held.poll());
    time::advance(SESSION).await;
    assert_eq!(lease.state(), LeaseState::Suspended);
    assert!(held.is_woken());
    assert_ready!(held.poll());
}

#[test]
fn a_demand_wakes_the_source_and_is_taken_once() {
    let mut task = task::spawn(());
    let waker = task.enter(|cx, _| cx.waker().clone());
    let terms = Terms { waker: Some(waker), ..Terms::default() };
    let (owner, lease) = Lease::grant_on(TopicPartition::new("t", 0), Epoch::new(1, "m"), terms);
    assert!(!owner.proof_demanded());
    lease.demand_proof();
    assert!(task.is_woken());
    assert!(owner.proof_demanded());
    assert!(!owner.proof_demanded());
}
