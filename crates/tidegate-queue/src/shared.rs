//! What the service, its lanes and its answers share.
//!
//! One lock guards all of it, and no wake-up is lost. Who waits, for a place,
//! a delivery, an answer or the lease, looks and leaves a waker under one hold
//! of the lock; who changes what is waited for takes the waker under the hold
//! that makes the change. So either the look sees the change, or the change
//! finds the waker. And a place that gets free wakes everybody who waits for
//! one, so that no wake is spent on somebody who has gone.
//!
//! Nothing foreign runs under the lock, but for the clone of a waker. Wakers
//! are woken after it; deliveries, errors and wakers are dropped after it,
//! because such a drop may take a response future with it, which locks again.

mod state;

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use tidegate_core::{Delivery, Error, Lease, Outcome};
use tracing::Span;

pub(crate) use self::state::Change;
use self::state::{Answer, Envelope, State};
use crate::{
    QueueConfig,
    metrics::Metrics,
    sync::{Mutex, MutexGuard},
};

pub(crate) struct Shared<T> {
    state: Mutex<State<T>>,
    metrics: Metrics,
}

/// One service's way into the queue, with the place that it has reserved.
pub(crate) struct Intake<T> {
    shared: Arc<Shared<T>>,
    // Where it leaves its waker.
    door: usize,
    reserved: bool,
}

/// What a lane took to make a batch of.
pub(crate) struct Taken<T> {
    pub(crate) deliveries: Vec<Arc<Delivery<T>>>,
    /// The span of the first one.
    pub(crate) span: Option<Box<Span>>,
}

/// How much a lane may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

// ===== impl Shared =====

impl<T> Shared<T> {
    pub(crate) fn new(config: &QueueConfig, metrics: Metrics) -> Self {
        Self { state: Mutex::new(State::new(config)), metrics }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Waits for the first delivery, and learns its lease.
    pub(crate) fn poll_lease(&self, cx: &Context<'_>) -> Poll<Lease> {
        let mut state = self.lock();
        if let Some(lease) = &state.lease {
            return Poll::Ready(lease.clone());
        }
        let stale = state.watcher.replace(cx.waker().clone());
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// Waits until deliveries wait in a lane, and takes them, up to the limits.
    ///
    /// The slots of their answers are added to `slots`. `None` means that the
    /// lane is closed.
    pub(crate) fn poll_take(
        &self,
        lane: usize,
        limits: Limits,
        slots: &mut Vec<usize>,
        cx: &Context<'_>,
    ) -> Poll<Option<Taken<T>>> {
        let mut state = self.lock();
        if state.is_closed(lane) {
            return Poll::Ready(None);
        }
        if let Some(taken) = state.take(lane, limits, slots) {
            let change = state.publish();
            drop(state);
            self.metrics.in_flight(change);
            return Poll::Ready(Some(taken));
        }
        let stale = state.lanes[lane].worker.replace(cx.waker().clone());
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// Gives answers, in order, as long as there are some.
    ///
    /// `wakes` is a buffer, left empty.
    pub(crate) fn answer(
        &self,
        slots: &[usize],
        outcomes: impl Iterator<Item = Outcome>,
        wakes: &mut Vec<Waker>,
    ) {
        let mut state = self.lock();
        slots.iter().zip(outcomes).for_each(|(slot, outcome)| {
            state.give(*slot, Ok(outcome), wakes);
        });
        self.unlock(state);
        wakes.drain(..).for_each(Waker::wake);
    }

    /// Closes a lane whose batch failed: `error` is for the failed ones,
    /// `reason` for those behind them, in the batch, in the lane and to come.
    pub(crate) fn fail(
        &self,
        lane: usize,
        (failed, behind): (&[usize], &[usize]),
        error: &Error,
        reason: &Error,
    ) {
        let mut wakes = Vec::new();
        let mut state = self.lock();
        // The caller keeps both errors: a clone that is dropped here is not the
        // last one.
        failed.iter().for_each(|slot| state.give(*slot, Err(error.clone()), &mut wakes));
        behind.iter().for_each(|slot| state.give(*slot, Err(reason.clone()), &mut wakes));
        let left = state.close(lane, reason, &mut wakes);
        self.unlock(state);
        wakes.into_iter().for_each(Waker::wake);
        drop(left);
    }

    /// Closes all lanes: what was taken and not begun, what waits, and what
    /// comes, is answered with `reason`. Batches that run go on.
    pub(crate) fn fence(&self, taken: &[usize], reason: &Error) {
        let mut wakes = Vec::new();
        let mut state = self.lock();
        taken.iter().for_each(|slot| state.give(*slot, Err(reason.clone()), &mut wakes));
        let lanes = 0..state.lanes.len();
        let left: Vec<_> = lanes.map(|lane| state.close(lane, reason, &mut wakes)).collect();
        self.unlock(state);
        wakes.into_iter().for_each(Waker::wake);
        let waited: usize = left.iter().map(VecDeque::len).sum();
        self.metrics.unstarted(taken.len() + waited);
    }

    /// Takes the answer that is in a slot, and with it frees the place.
    pub(crate) fn poll_answer(
        &self,
        slot: usize,
        cx: &Context<'_>,
    ) -> Poll<Result<Outcome, Error>> {
        let mut state = self.lock();
        match &mut state.slots[slot].answer {
            Answer::Awaited(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            Answer::Awaited(waker) => {
                let stale = waker.replace(cx.waker().clone());
                drop(state);
                drop(stale);
                Poll::Pending
            }
            Answer::Given(_) | Answer::Deserted => {
                let answer = state.vacate(slot);
                self.unlock(state);
                let Answer::Given(result) = answer else {
                    unreachable!("only the drop of its future deserts a slot")
                };
                Poll::Ready(result)
            }
        }
    }

    /// Says that nobody waits for the answer of a slot any more.
    pub(crate) fn desert(&self, slot: usize) {
        let mut state = self.lock();
        let answer = &mut state.slots[slot].answer;
        if let Answer::Awaited(_) = answer {
            let stale = mem::replace(answer, Answer::Deserted);
            drop(state);
            drop(stale);
            return;
        }
        let stale = state.vacate(slot);
        self.unlock(state);
        drop(stale);
    }

    /// Unlocks, where a place may have got free.
    fn unlock(&self, mut state: MutexGuard<'_, State<T>>) {
        // Published with each batch, and when all is done: not at each place,
        // because all queues of the process share the gauges.
        let change = state.slots.is_empty().then(|| state.publish());
        let doors = state.doors_to_wake();
        drop(state);
        if let Some(change) = change {
            self.metrics.in_flight(change);
        }
        if let Some((first, rest)) = doors {
            first.wake();
            rest.into_iter().for_each(Waker::wake);
        }
    }

    // What runs under the lock does not panic half way.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let change = self.lock().withdraw();
        self.metrics.in_flight(change);
    }
}

// ===== impl Intake =====

impl<T> Intake<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let door = shared.lock().open_door();
        Self { shared, door, reserved: false }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    /// Reserves a place for a delivery whose size is not known yet.
    pub(crate) fn poll_reserve(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.reserved {
            return Poll::Ready(());
        }
        let mut state = self.shared.lock();
        if state.has_room() {
            state.records += 1;
            self.reserved = true;
            return Poll::Ready(());
        }
        let stale = state.wait_at(self.door, cx.waker());
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// Queues a delivery in the place that was reserved, and returns the slot
    /// of its answer.
    pub(crate) fn push(
        &mut self,
        lane: usize,
        delivery: Delivery<T>,
        span: Option<Box<Span>>,
    ) -> usize {
        assert!(mem::take(&mut self.reserved), "`call` comes after `poll_ready` was ready");
        let bytes = delivery.record.size();
        let envelope = Envelope { delivery: Arc::new(delivery), slot: 0, bytes, span };
        let mut state = self.shared.lock();
        let (slot, refused) = state.push(lane, envelope);
        let worker = state.lanes[lane].worker.take_if(|_| refused.is_none());
        let watcher = state.watcher.take();
        drop(state);
        drop(refused);
        if let Some(worker) = worker {
            worker.wake();
        }
        if let Some(watcher) = watcher {
            watcher.wake();
        }
        slot
    }
}

impl<T> Clone for Intake<T> {
    fn clone(&self) -> Self {
        // Readiness is not inherited: a place belongs to one instance.
        Self::new(Arc::clone(&self.shared))
    }
}

impl<T> Drop for Intake<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let stale = state.close_door(self.door);
        if !self.reserved {
            drop(state);
            drop(stale);
            return;
        }
        state.records -= 1;
        self.shared.unlock(state);
        drop(stale);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
