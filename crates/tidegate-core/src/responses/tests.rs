use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use proptest::{collection::vec, prelude::*};
use tokio_test::{
    assert_pending, assert_ready,
    task::{self, Spawn},
};

use super::{Context, GROUP, Pin, Poll, Responses, Waker};

/// A response that is done when a test says so.
#[derive(Clone, Default)]
struct Response(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answer: Option<Result<(), usize>>,
    waker: Option<Waker>,
    polls: usize,
}

impl Response {
    fn answer(&self, result: Result<(), usize>) {
        let mut state = self.0.lock().unwrap();
        state.answer = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_by_ref(&self) {
        self.0.lock().unwrap().waker.as_ref().unwrap().wake_by_ref();
    }

    fn polls(&self) -> usize {
        self.0.lock().unwrap().polls
    }

    /// Whether nobody waits for it any more.
    fn is_gone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Future for Response {
    type Output = Result<(), usize>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().unwrap();
        state.polls += 1;
        state.waker = Some(cx.waker().clone());
        state.answer.take().map_or(Poll::Pending, Poll::Ready)
    }
}

fn responses() -> Spawn<Responses<Response>> {
    task::spawn(Responses::default())
}

fn push(responses: &mut Spawn<Responses<Response>>) -> Response {
    let response = Response::default();
    responses.push(response.clone()).unwrap();
    response
}

fn poll(responses: &mut Spawn<Responses<Response>>) -> Result<(), usize> {
    responses.enter(|cx, mut responses| {
        responses.register(cx);
        responses.poll_woken()
    })
}

fn poll_all(responses: &mut Spawn<Responses<Response>>) -> Poll<()> {
    responses.enter(|cx, mut responses| responses.poll_all(cx))
}

#[test]
fn a_response_that_is_done_says_so_when_it_is_added() {
    let mut responses = responses();
    for result in [Ok(()), Err(7)] {
        let response = Response::default();
        response.answer(result);
        assert_eq!(responses.push(response.clone()), result);
        assert!(response.is_gone() && responses.is_empty());
    }
}

#[test]
fn a_wake_up_is_for_its_group_and_no_other() {
    let mut responses = responses();
    let all: Vec<_> = (0..GROUP * 2).map(|_| push(&mut responses)).collect();
    assert_eq!(poll(&mut responses), Ok(()));
    all[GROUP].wake_by_ref();
    assert!(responses.is_woken());
    assert_eq!(poll(&mut responses), Ok(()));
    let polls = |group: &[Response]| group.iter().map(Response::polls).sum::<usize>();
    assert_eq!(polls(&all[..GROUP]), GROUP, "once each, when they were added");
    assert_eq!(polls(&all[GROUP..]), GROUP * 2);
}

#[test]
fn a_batch_of_answers_wakes_its_task_once_and_is_taken_in_one_turn() {
    let mut responses = responses();
    let all: Vec<_> = (0..GROUP * 3).map(|_| push(&mut responses)).collect();
    assert_pending!(poll_all(&mut responses));
    all.iter().for_each(|response| response.answer(Ok(())));
    assert!(responses.is_woken());
    assert_ready!(poll_all(&mut responses));
    assert!(all.iter().all(|response| response.is_gone() && response.polls() == 2));
}

#[test]
fn the_first_failure_is_told_and_the_others_are_done_too() {
    let mut responses = responses();
    let all: Vec<_> = (0..4).map(|_| push(&mut responses)).collect();
    all[3].answer(Err(3));
    all[1].answer(Err(1));
    assert_eq!(poll(&mut responses), Err(1));
    assert_eq!(all.iter().map(Response::is_gone).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(poll(&mut responses), Ok(()));
}

#[test]
fn a_response_that_wakes_itself_is_polled_again() {
    let mut responses = task::spawn(Responses::default());
    let yielding = async {
        tokio::task::yield_now().await;
        Ok::<(), ()>(())
    };
    responses.push(yielding).unwrap();
    let polled = responses.enter(|cx, mut responses| responses.poll_all(cx));
    assert_ready!(polled);
}

#[test]
fn a_waker_that_outlives_its_response_harms_nothing() {
    let mut responses = responses();
    let all: Vec<_> = (0..GROUP * 2).map(|_| push(&mut responses)).collect();
    let waker = all[GROUP].0.lock().unwrap().waker.clone().unwrap();
    all.iter().for_each(|response| response.answer(Ok(())));
    assert_ready!(poll_all(&mut responses));
    waker.wake_by_ref();
    assert_ready!(poll_all(&mut responses));
    let next = push(&mut responses);
    waker.wake();
    assert_pending!(poll_all(&mut responses));
    next.answer(Ok(()));
    assert_ready!(poll_all(&mut responses));
}

#[test]
fn what_waits_is_dropped_with_the_rest() {
    let mut responses = responses();
    let waits = push(&mut responses);
    drop(responses);
    assert!(waits.is_gone());
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    // The one of those that wait at this place, counted round.
    Answer(usize, bool),
    Wake(usize),
    Poll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Push),
        6 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(at, ok)| Step::Answer(at, ok)),
        1 => any::<usize>().prop_map(Step::Wake),
        2 => Just(Step::Poll),
    ];
    vec(step, 0..600)
}

proptest! {
    // In any order of answers: each one wakes the task, and is taken in its next
    // turn, and nothing else is.
    #[test]
    fn what_is_answered_is_taken_in_the_next_turn(steps in steps()) {
        let mut responses = responses();
        let mut waiting: BTreeMap<usize, Response> = BTreeMap::new();
        let mut answered: BTreeMap<usize, (Response, bool)> = BTreeMap::new();
        prop_assert_eq!(poll(&mut responses), Ok(()));
        for (number, step) in steps.into_iter().chain([Step::Poll]).enumerate() {
            let at = |at: usize| waiting.keys().nth(at % waiting.len().max(1)).copied();
            match step {
                Step::Push => {
                    waiting.insert(number, push(&mut responses));
                }
                Step::Answer(place, ok) => {
                    let Some(key) = at(place) else { continue };
                    let response = waiting.remove(&key).unwrap();
                    response.answer(if ok { Ok(()) } else { Err(key) });
                    prop_assert!(responses.is_woken());
                    answered.insert(key, (response, ok));
                }
                Step::Wake(place) => {
                    let Some(key) = at(place) else { continue };
                    waiting[&key].wake_by_ref();
                }
                Step::Poll => {
                    let failed = poll(&mut responses);
                    let is_among = |key: &usize| answered.get(key).is_some_and(|(_, ok)| !ok);
                    prop_assert!(failed.as_ref().err().is_none_or(is_among));
                    prop_assert_eq!(failed.is_ok(), answered.values().all(|(_, ok)| *ok));
                    prop_assert!(answered.values().all(|(response, _)| response.is_gone()));
                    answered.clear();
                    prop_assert_eq!(responses.is_empty(), waiting.is_empty());
                }
            }
        }
        prop_assert!(waiting.values().all(|response| !response.is_gone()));
    }
}
