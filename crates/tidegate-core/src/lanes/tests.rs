use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex},
};

use tokio_test::{
    assert_pending, assert_ready, assert_ready_eq, assert_ready_err, assert_ready_ok,
    task::{self, Spawn},
};

use super::{Answer, Intake, Lane, Lanes, Outcome, Outcomes, Poll, Volume};
use crate::{Class, Error};

const MOST: Volume = volume(8, 100);

/// The size of each delivery that is sent.
const SIZE: usize = 7;

const fn volume(records: usize, bytes: usize) -> Volume {
    Volume { records, bytes }
}

fn lanes<I>(most: Volume) -> Lanes<I> {
    Lanes::new(1, most, |_, _| {})
}

fn error(message: &'static str) -> Error {
    Error::new(Class::Fenced, message)
}

fn lane<I>(lanes: &Lanes<I>) -> Lane<I> {
    lanes.lane(0, error("the lane is gone"))
}

fn intake<I>(lanes: &Lanes<I>) -> Spawn<Intake<I>> {
    task::spawn(lanes.intake())
}

fn reserve<I>(intake: &mut Spawn<Intake<I>>) -> Poll<()> {
    intake.enter(|cx, mut intake| intake.poll_reserve(cx))
}

fn send<I>(intake: &mut Spawn<Intake<I>>, item: I) -> Spawn<Answer<I>> {
    assert_ready!(reserve(intake));
    task::spawn(intake.push(0, item, SIZE))
}

/// What the lane takes at once.
fn take<I>(lane: &mut Lane<I>, most: Volume) -> Vec<I> {
    let mut items = Vec::new();
    let taken = assert_ready!(task::spawn(lane.take(most, &mut items)).poll());
    assert_eq!(taken, items.len());
    items
}

fn applied(count: usize) -> Outcomes {
    Outcomes::all(Outcome::Applied, count)
}

#[track_caller]
fn assert_applied<I>(answer: &mut Spawn<Answer<I>>) {
    assert_eq!(assert_ready_ok!(answer.poll()), Outcome::Applied);
}

#[track_caller]
fn assert_failed<I>(answer: &mut Spawn<Answer<I>>, message: &'static str) {
    assert_eq!(assert_ready_err!(answer.poll()).to_string(), error(message).to_string());
}

// ===== places =====

#[test]
fn a_reservation_that_is_dropped_is_somebody_elses() {
    let lanes = lanes::<()>(volume(1, 100));
    let (mut first, mut second) = (intake(&lanes), intake(&lanes));
    assert_ready!(reserve(&mut first));
    assert_ready!(reserve(&mut first), "a second poll reserves no second place");
    assert_pending!(reserve(&mut second));
    drop(first);
    assert!(second.is_woken());
    assert_ready!(reserve(&mut second));
}

#[test]
fn a_free_place_wakes_all_who_wait_so_that_none_is_forgotten() {
    let lanes = lanes::<()>(volume(1, 100));
    let (mut holder, mut gone, mut waiting) = (intake(&lanes), intake(&lanes), intake(&lanes));
    assert_ready!(reserve(&mut holder));
    assert_pending!(reserve(&mut gone));
    assert_pending!(reserve(&mut waiting));
    drop(holder);
    drop(gone);
    assert!(waiting.is_woken());
}

#[test]
fn a_place_is_held_until_the_answer_is_taken() {
    let lanes = lanes(volume(1, 100));
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut answer = send(&mut source, ());
    assert_pending!(answer.poll());
    assert_pending!(reserve(&mut source));
    take(&mut lane, MOST);
    lane.answer(&applied(1));
    assert!(answer.is_woken());
    assert_pending!(reserve(&mut source), "it is given, but not taken");
    assert_applied(&mut answer);
    assert!(source.is_woken());
    assert_ready!(reserve(&mut source));
}

#[test]
fn a_dropped_answer_frees_its_place_when_it_is_given() {
    let lanes = lanes(volume(1, 100));
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    drop(send(&mut source, ()));
    assert_pending!(reserve(&mut source), "it waits");
    take(&mut lane, MOST);
    assert_pending!(reserve(&mut source), "it was taken");
    lane.answer(&applied(1));
    assert!(source.is_woken());

    // And at once where it was given before.
    let answer = send(&mut source, ());
    take(&mut lane, MOST);
    lane.answer(&applied(1));
    assert_pending!(reserve(&mut source));
    drop(answer);
    assert!(source.is_woken());
    assert_ready!(reserve(&mut source));
}

#[test]
fn bytes_are_a_bound_that_each_reservation_may_pass_once() {
    let lanes = lanes(volume(8, 10));
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut first = send(&mut source, ());
    let _second = send(&mut source, ());
    assert_pending!(reserve(&mut source));
    take(&mut lane, MOST);
    lane.answer(&applied(1));
    assert_applied(&mut first);
    assert!(source.is_woken());
    assert_ready!(reserve(&mut source));
}

#[test]
fn a_refusal_holds_its_place_too() {
    let lanes = lanes::<()>(volume(1, 100));
    let mut source = intake(&lanes);
    assert_ready!(reserve(&mut source));
    let mut answer = task::spawn(source.refuse(SIZE, error("of another lease")));
    assert_pending!(reserve(&mut source));
    assert_failed(&mut answer, "of another lease");
    assert_ready!(reserve(&mut source));
}

#[test]
#[should_panic(expected = "it reserves a place")]
fn a_clone_has_reserved_nothing() {
    let lanes = lanes(MOST);
    let mut source = intake(&lanes);
    assert_ready!(reserve(&mut source));
    drop(Intake::clone(&source).push(0, (), SIZE));
}

// ===== lanes =====

#[test]
fn a_lane_takes_in_order_up_to_a_volume_and_one_whatever_its_size() {
    let lanes = lanes(volume(8, 1_000));
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut answers: Vec<_> = (0..5).map(|item| send(&mut source, item)).collect();
    assert_eq!(take(&mut lane, volume(2, 100)), [0, 1]);
    assert_eq!(take(&mut lane, volume(8, 2 * SIZE)), [2, 3]);
    assert_eq!(take(&mut lane, volume(8, 1)), [4]);
    lane.answer(&applied(5));
    answers.iter_mut().for_each(assert_applied);
}

#[test]
fn a_lane_that_waits_is_woken_by_a_delivery() {
    let lanes = lanes(MOST);
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut items = Vec::new();
    let mut taking = task::spawn(lane.take(MOST, &mut items));
    assert_pending!(taking.poll());
    let _answer = send(&mut source, "payload");
    assert!(taking.is_woken());
    assert_ready_eq!(taking.poll(), 1);
    drop(taking);
    assert_eq!(items, ["payload"]);
}

#[test]
fn the_oldest_that_were_taken_are_answered_first() {
    let lanes = lanes(MOST);
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut answers: Vec<_> = (0..3).map(|item| send(&mut source, item)).collect();
    take(&mut lane, MOST);
    lane.answer(&applied(1));
    lane.fail(1, &error("no such account"));
    assert_applied(&mut answers[0]);
    assert_failed(&mut answers[1], "no such account");
    assert_pending!(answers[2].poll());
}

#[test]
#[should_panic(expected = "a delivery is taken before it is answered")]
fn what_was_not_taken_is_not_answered() {
    let lanes = lanes(MOST);
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let _answer = send(&mut source, ());
    lane.answer(&applied(1));
}

#[test]
fn a_key_has_one_lane_and_all_without_one_share_one() {
    let lanes = Lanes::<()>::new(4, MOST, |_, _| {});
    let (one, other) = (lanes.intake(), lanes.intake());
    let keys: Vec<_> = (0..=u8::MAX).map(|key| [key]).collect();
    let of = |intake: &Intake<()>| keys.iter().map(|key| intake.lane_of(Some(key))).collect();
    let lanes_of: Vec<_> = of(&one);
    assert_eq!(lanes_of, of(&other));
    assert_eq!(one.lane_of(None), other.lane_of(None));
    assert_eq!(BTreeSet::from_iter(lanes_of), BTreeSet::from([0, 1, 2, 3]));
}

// ===== ends =====

#[test]
fn closing_all_lanes_answers_what_waits_and_what_comes_but_not_what_was_taken() {
    let lanes = lanes(MOST);
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut taken = send(&mut source, 0);
    take(&mut lane, MOST);
    let mut waiting = send(&mut source, 1);
    assert_pending!(waiting.poll());
    assert_eq!(lanes.close(&error("drained")), 1);
    assert!(waiting.is_woken());
    assert_failed(&mut waiting, "drained");
    assert_eq!(lanes.close(&error("lost")), 0);
    assert_failed(&mut send(&mut source, 2), "drained");

    assert_pending!(taken.poll());
    lane.answer(&applied(1));
    assert_applied(&mut taken);
    assert_eq!(take(&mut lane, MOST), []);
}

#[test]
fn closing_a_lane_wakes_who_takes_from_it() {
    let lanes = lanes::<()>(MOST);
    let mut lane = lane(&lanes);
    let mut items = Vec::new();
    let mut taking = task::spawn(lane.take(MOST, &mut items));
    assert_pending!(taking.poll());
    lanes.close(&error("drained"));
    assert!(taking.is_woken());
    assert_ready_eq!(taking.poll(), 0);
}

#[test]
fn a_lane_that_closes_answers_what_it_took_too_and_leaves_the_others_open() {
    let lanes = Lanes::new(2, MOST, |_, _| {});
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut taken = send(&mut source, 0);
    take(&mut lane, MOST);
    let mut waiting = send(&mut source, 1);
    assert_eq!(lane.close(&error("halted")), 2);
    for answer in [&mut taken, &mut waiting] {
        assert_failed(answer, "halted");
    }
    assert_ready!(reserve(&mut source));
    let mut other = task::spawn(source.push(1, 2, SIZE));
    assert_pending!(other.poll());
}

#[test]
fn a_dropped_lane_leaves_nothing_without_an_answer() {
    let lanes = lanes(MOST);
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let mut taken = send(&mut source, 0);
    take(&mut lane, MOST);
    let mut waiting = send(&mut source, 1);
    drop(lane);
    for answer in [&mut taken, &mut waiting, &mut send(&mut source, 2)] {
        assert_failed(answer, "the lane is gone");
    }
}

/// A delivery that awaits the answer to another one.
struct Nested(#[expect(dead_code, reason = "it is there to be dropped")] Option<Answer<Self>>);

// Its drop locks again: nothing that was sent is dropped under the lock.
#[test]
fn a_delivery_may_hold_the_answer_to_another_one() {
    let lanes = lanes(MOST);
    let mut source = intake(&lanes);
    let inner = send(&mut source, Nested(None)).into_inner();
    let mut outer = send(&mut source, Nested(Some(inner)));
    lanes.close(&error("drained"));
    assert_failed(&mut outer, "drained");
    let inner = send(&mut source, Nested(None)).into_inner();
    assert_failed(&mut send(&mut source, Nested(Some(inner))), "drained");
}

// ===== reports =====

#[test]
fn what_is_in_flight_is_reported_when_it_is_taken_and_when_nothing_is_left() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let lanes = Lanes::new(1, MOST, {
        let reports = Arc::clone(&reports);
        move |before, now| reports.lock().expect("no test panics there").push((before, now))
    });
    let reported = || mem::take(&mut *reports.lock().expect("no test panics there"));
    let (mut source, mut lane) = (intake(&lanes), lane(&lanes));
    let (none, two) = (Volume::default(), volume(2, 2 * SIZE));

    let mut answers = [send(&mut source, ()), send(&mut source, ())];
    assert_eq!(reported(), [], "not of each delivery");
    take(&mut lane, MOST);
    assert_eq!(reported(), [(none, two)]);
    lane.answer(&applied(2));
    assert_applied(&mut answers[0]);
    assert_eq!(reported(), []);
    assert_applied(&mut answers[1]);
    assert_eq!(reported(), [(two, none)]);

    // And what is left is taken back at the end.
    let answer = send(&mut source, ());
    take(&mut lane, MOST);
    reported();
    drop((source, lane, lanes));
    assert_eq!(reported(), [], "an answer is a handle");
    drop(answer);
    assert_eq!(reported(), [(volume(1, SIZE), none)]);
}
