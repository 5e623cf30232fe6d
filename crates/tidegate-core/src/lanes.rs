mod state;

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    hash::{BuildHasher as _, RandomState},
    iter, mem,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use self::state::{Reply, State};
use super::{Error, Outcome, Outcomes};
use crate::sync::{Mutex, MutexGuard};

/// So many records, and so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// How many records.
    pub records: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// The lanes of a queue: what waits in them, and the answers that are awaited.
///
/// A delivery comes in through an [`Intake`], which reserves a place for it
/// first. It waits in its lane until the [`Lane`] takes it, maybe with others,
/// and gives it an answer. Its place is held until that [`Answer`] is taken or
/// dropped: were it free when the answer is given, a slow reader would have any
/// number of answers in memory.
///
/// What stands for a delivery is up to the queue: it is an `I`. A clone is
/// another handle on the same lanes.
///
/// ```
/// use std::future::poll_fn;
///
/// use tidegate_core::{Class, Error, Lanes, Outcome, Outcomes, Volume};
///
/// # tokio_test::block_on(async {
/// let most = Volume { records: 100, bytes: 1 << 20 };
/// let lanes = Lanes::new(4, most, |_, _| {});
/// let mut intake = lanes.intake();
/// let index = intake.lane_of(Some(b"alice"));
/// let mut lane = lanes.lane(index, Error::new(Class::Fenced, "the queue is gone"));
///
/// poll_fn(|cx| intake.poll_reserve(cx)).await;
/// let answer = intake.push(index, "a transfer", 10);
///
/// let mut items = Vec::new();
/// lane.take(most, &mut items).await;
/// assert_eq!(items, ["a transfer"]);
/// lane.answer(&Outcomes::all(Outcome::Applied, 1));
/// assert_eq!(answer.await?, Outcome::Applied);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct Lanes<I> {
    shared: Arc<Shared<I>>,
}

/// A way into [`Lanes`], with the place that it has reserved.
///
/// A clone is another way in, which has reserved nothing. A place that was
/// reserved and not spent is given back on drop.
pub struct Intake<I> {
    shared: Arc<Shared<I>>,
    // Where it leaves its waker.
    door: usize,
    reserved: bool,
}

/// One of some [`Lanes`], to take deliveries from, and to answer them in order.
///
/// When it is dropped, the lane is closed, so that nothing is left without an
/// answer.
pub struct Lane<I> {
    shared: Arc<Shared<I>>,
    index: usize,
    // The slots of what was taken and has no answer, oldest first.
    taken: VecDeque<usize>,
    end: Error,
    // A buffer, left empty.
    wakes: Vec<Waker>,
}

/// Resolves to the answer to one delivery, and gives its place back.
///
/// # Cancel safety
///
/// Dropping it does not recall the delivery. Its place is free when it was
/// answered.
#[must_use = "futures do nothing unless polled"]
pub struct Answer<I> {
    // Gone when the answer is taken.
    slot: Option<(Arc<Shared<I>>, usize)>,
}

/// What all handles share.
///
/// One lock guards the state, and no wake-up is lost. Who waits, for a place, a
/// delivery or an answer, looks and leaves a waker under one hold of the lock;
/// who changes what is waited for takes the waker under the hold that makes the
/// change. So either the look sees the change, or the change finds the waker.
///
/// Nothing foreign runs under the lock, but for the clone of a waker. Wakers
/// are woken after it; deliveries, errors and wakers are dropped after it,
/// because such a drop may take an [`Answer`] with it, which locks again.
struct Shared<I> {
    state: Mutex<State<I>>,
    // Of random keys, so that no producer can choose who shares a lane.
    hasher: RandomState,
    count: usize,
    report: Box<dyn Fn(Volume, Volume) + Send + Sync>,
}

// ===== impl Lanes =====

impl<I> Lanes<I> {
    /// Makes `count` lanes, which together are full with `most` in flight.
    ///
    /// The bytes of a delivery are not known when its place is reserved, so
    /// each reservation that was made below that bound may exceed it by one
    /// delivery.
    ///
    /// `report` is told how what is in flight changed, from one volume to
    /// another: with whatever is taken, when nothing is left, and when the last
    /// handle is gone. It is not told of each delivery: it may be slow.
    ///
    /// # Panics
    ///
    /// When there is no lane, or no room for a record or a byte.
    #[must_use]
    pub fn new(
        count: usize,
        most: Volume,
        report: impl Fn(Volume, Volume) + Send + Sync + 'static,
    ) -> Self {
        assert!(count > 0, "there is a lane");
        assert!(most.records > 0 && most.bytes > 0, "there is room for a record");
        let state = Mutex::new(State::new(count, most));
        let (hasher, report) = (RandomState::new(), Box::new(report));
        Self { shared: Arc::new(Shared { state, hasher, count, report }) }
    }

    /// A way in.
    #[must_use]
    pub fn intake(&self) -> Intake<I> {
        Intake::new(Arc::clone(&self.shared))
    }

    /// The lane of that index, whose deliveries get `end` for an answer when it
    /// is dropped.
    ///
    /// A lane is in order only if one task takes from it.
    ///
    /// # Panics
    ///
    /// When there is no such lane.
    #[must_use]
    pub fn lane(&self, index: usize, end: Error) -> Lane<I> {
        assert!(index < self.shared.count, "there is no lane {index}");
        let shared = Arc::clone(&self.shared);
        Lane { shared, index, taken: VecDeque::new(), end, wakes: Vec::new() }
    }

    /// Closes all lanes: what waits, and what comes, is answered with `reason`.
    /// What was taken is not. Returns how many have waited.
    pub fn close(&self, reason: &Error) -> usize {
        let mut wakes = Vec::new();
        let close = |state: &mut State<I>| {
            let lanes = 0..self.shared.count;
            lanes.map(|lane| state.close(lane, reason, &mut wakes)).collect::<Vec<_>>()
        };
        let left = self.shared.freeing(close);
        wakes.into_iter().for_each(Waker::wake);
        left.iter().map(Vec::len).sum()
    }
}

impl<I> Clone for Lanes<I> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<I> fmt::Debug for Lanes<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("count", &self.shared.count).finish_non_exhaustive()
    }
}

// ===== impl Intake =====

impl<I> Intake<I> {
    fn new(shared: Arc<Shared<I>>) -> Self {
        let door = shared.with(State::open_door);
        Self { shared, door, reserved: false }
    }

    /// The lane of a key. Deliveries without one share a lane.
    #[must_use]
    pub fn lane_of(&self, key: Option<&[u8]>) -> usize {
        let Shared { hasher, count, .. } = &*self.shared;
        if *count == 1 {
            return 0;
        }
        // Of a hash, any bits will do.
        hasher.hash_one(key) as usize % count
    }

    /// Waits for a place, and reserves it.
    pub fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.reserved {
            let reserved = self.shared.with(|state| state.reserve(self.door, cx.waker()));
            self.reserved = reserved.is_ok();
        }
        if self.reserved { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Puts a delivery of so many bytes into a lane, in the place that was
    /// reserved. A closed lane answers it at once.
    ///
    /// # Panics
    ///
    /// When no place was reserved, or there is no such lane.
    pub fn push(&mut self, lane: usize, item: I, bytes: usize) -> Answer<I> {
        let (slot, pushed) = self.spend(|state| state.push(lane, item, bytes));
        if let Ok(Some(taker)) = pushed {
            taker.wake();
        }
        Answer::new(&self.shared, slot)
    }

    /// Answers a delivery that comes into no lane, in the place that was
    /// reserved.
    ///
    /// # Panics
    ///
    /// When no place was reserved.
    pub fn refuse(&mut self, bytes: usize, error: Error) -> Answer<I> {
        let slot = self.spend(|state| state.occupy(bytes, Reply::Given(Err(error))));
        Answer::new(&self.shared, slot)
    }

    fn spend<R>(&mut self, change: impl FnOnce(&mut State<I>) -> R) -> R {
        assert!(
            mem::take(&mut self.reserved),
            "`call` comes after `poll_ready` was ready: it reserves a place"
        );
        self.shared.with(change)
    }
}

impl<I> Clone for Intake<I> {
    fn clone(&self) -> Self {
        // Readiness is not inherited: a place belongs to one instance.
        Self::new(Arc::clone(&self.shared))
    }
}

impl<I> Drop for Intake<I> {
    fn drop(&mut self) {
        drop(self.shared.freeing(|state| state.close_door(self.door, self.reserved)));
    }
}

impl<I> fmt::Debug for Intake<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("reserved", &self.reserved).finish_non_exhaustive()
    }
}

// ===== impl Lane =====

impl<I> Lane<I> {
    /// Its index.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Waits until deliveries wait in the lane, takes them in order, and adds
    /// them to `items`: one whatever its size, and more up to `most`. Returns
    /// how many; zero means that the lane is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what it takes, it returns in the same poll.
    pub async fn take(&mut self, most: Volume, items: &mut Vec<I>) -> usize {
        poll_fn(|cx| self.poll_take(most, items, cx)).await
    }

    fn poll_take(&mut self, most: Volume, items: &mut Vec<I>, cx: &Context<'_>) -> Poll<usize> {
        let Self { shared, index, taken, .. } = self;
        let before = items.len();
        let polled = shared.with(|state| {
            let polled = state.take(*index, most, items, taken, cx.waker());
            polled.map(|()| state.report())
        });
        let Ok(change) = polled else { return Poll::Pending };
        shared.report(change);
        Poll::Ready(items.len() - before)
    }

    /// Gives an answer to each of the oldest deliveries that were taken.
    ///
    /// # Panics
    ///
    /// When there are more outcomes than deliveries without an answer.
    pub fn answer(&mut self, outcomes: &Outcomes) {
        self.give(outcomes.iter().map(Ok));
    }

    /// Gives `error` to `count` of the oldest deliveries that were taken.
    ///
    /// # Panics
    ///
    /// When there are fewer deliveries without an answer.
    pub fn fail(&mut self, count: usize, error: &Error) {
        // The caller keeps the error, so a clone that is dropped under the lock
        // is not the last one.
        self.give(iter::repeat_n(Err(error.clone()), count));
    }

    fn give(&mut self, results: impl ExactSizeIterator<Item = Result<Outcome, Error>>) {
        let Self { shared, taken, wakes, .. } = self;
        assert!(results.len() <= taken.len(), "a delivery is taken before it is answered");
        shared.freeing(|state| {
            let slots = taken.drain(..results.len());
            slots.zip(results).for_each(|(slot, result)| state.give(slot, result, wakes));
        });
        wakes.drain(..).for_each(Waker::wake);
    }

    /// Closes the lane: what was taken and has no answer, what waits, and what
    /// comes, is answered with `reason`. Returns how many were there.
    pub fn close(&mut self, reason: &Error) -> usize {
        let Self { shared, index, taken, wakes, .. } = self;
        let given = taken.len();
        let left = shared.freeing(|state| {
            taken.drain(..).for_each(|slot| state.give(slot, Err(reason.clone()), wakes));
            state.close(*index, reason, wakes)
        });
        wakes.drain(..).for_each(Waker::wake);
        given + left.len()
    }
}

impl<I> Drop for Lane<I> {
    fn drop(&mut self) {
        let end = self.end.clone();
        self.close(&end);
    }
}

impl<I> fmt::Debug for Lane<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("index", &self.index).finish_non_exhaustive()
    }
}

// ===== impl Answer =====

impl<I> Answer<I> {
    fn new(shared: &Arc<Shared<I>>, slot: usize) -> Self {
        Self { slot: Some((Arc::clone(shared), slot)) }
    }
}

impl<I> Future for Answer<I> {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, slot) = self.slot.as_ref().expect("a future is not polled after it is done");
        // Not `freeing`: most looks find no answer, and free nothing.
        let mut state = shared.lock();
        match state.answer(*slot, cx.waker()) {
            Ok(result) => {
                shared.unlock(state);
                self.slot = None;
                Poll::Ready(result)
            }
            Err(stale) => {
                drop(state);
                drop(stale);
                Poll::Pending
            }
        }
    }
}

impl<I> Drop for Answer<I> {
    fn drop(&mut self) {
        if let Some((shared, slot)) = &self.slot {
            drop(shared.freeing(|state| state.desert(*slot)));
        }
    }
}

impl<I> fmt::Debug for Answer<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

// ===== impl Shared =====

impl<I> Shared<I> {
    /// Makes a change under the lock. What it returns is dropped, or woken,
    /// after the lock.
    fn with<R>(&self, change: impl FnOnce(&mut State<I>) -> R) -> R {
        change(&mut self.lock())
    }

    /// Makes a change that may free places, and wakes who waits for one.
    fn freeing<R>(&self, change: impl FnOnce(&mut State<I>) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.unlock(state);
        result
    }

    /// Unlocks, where a place may have got free.
    fn unlock(&self, mut state: MutexGuard<'_, State<I>>) {
        let change = if state.is_idle() { state.report() } else { None };
        let doors = state.doors_to_wake();
        drop(state);
        self.report(change);
        if let Some((first, rest)) = doors {
            first.wake();
            rest.into_iter().for_each(Waker::wake);
        }
    }

    // What runs under the lock does not panic half way.
    fn lock(&self) -> MutexGuard<'_, State<I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, change: Option<(Volume, Volume)>) {
        if let Some((before, now)) = change {
            (self.report)(before, now);
        }
    }
}

impl<I> Drop for Shared<I> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let change = state.withdraw();
        self.report(change);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
