use std::{collections::VecDeque, mem, sync::Arc, task::Waker};

use slab::Slab;
use tidegate_core::{Delivery, Error, Lease, Outcome};
use tracing::Span;

use super::{Limits, Taken};
use crate::{QueueConfig, QueueError};

/// What is under the lock.
pub(super) struct State<T> {
    // Places that are reserved, waiting, running, or answered and not taken;
    // and the bytes of those whose record is known.
    pub(super) records: usize,
    bytes: usize,
    max_records: usize,
    max_bytes: usize,
    // One for each service, with its waker while it waits for a place; and how
    // many do.
    doors: Slab<Option<Waker>>,
    waiting: usize,
    // One for each delivery, until its answer is taken.
    pub(super) slots: Slab<Slot>,
    pub(super) lanes: Box<[Lane<T>]>,
    // Known from the first delivery.
    pub(super) lease: Option<Lease>,
    pub(super) watcher: Option<Waker>,
    // What the metrics know to be in flight.
    published: InFlight,
}

pub(super) struct Lane<T> {
    waiting: VecDeque<Envelope<T>>,
    pub(super) worker: Option<Waker>,
    // Why it takes no more.
    closed: Option<Error>,
}

/// A delivery that waits in its lane.
pub(super) struct Envelope<T> {
    pub(super) delivery: Arc<Delivery<T>>,
    pub(super) slot: usize,
    pub(super) bytes: usize,
    // A queue is a task boundary, and spans do not cross those by themselves.
    pub(super) span: Option<Box<Span>>,
}

/// Where the answer to a delivery is put.
pub(super) struct Slot {
    bytes: usize,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    Awaited(Option<Waker>),
    Given(Result<Outcome, Error>),
    // Its future was dropped, while the delivery waits or runs.
    Deserted,
}

/// Deliveries whose answer was not taken, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// How what is in flight has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: InFlight,
    pub(crate) to: InFlight,
}

// ===== impl State =====

impl<T> State<T> {
    pub(super) fn new(config: &QueueConfig) -> Self {
        let lane = |_| Lane { waiting: VecDeque::new(), worker: None, closed: None };
        Self {
            records: 0,
            bytes: 0,
            max_records: config.records,
            max_bytes: config.bytes,
            doors: Slab::new(),
            waiting: 0,
            slots: Slab::new(),
            lanes: (0..config.lanes).map(lane).collect(),
            lease: None,
            watcher: None,
            published: InFlight::default(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.records < self.max_records && self.bytes < self.max_bytes
    }

    /// Queues a delivery, or answers it at once and gives it back.
    pub(super) fn push(
        &mut self,
        lane: usize,
        envelope: Envelope<T>,
    ) -> (usize, Option<Envelope<T>>) {
        let bytes = envelope.bytes;
        self.bytes += bytes;
        let lease = self.lease.get_or_insert_with(|| Lease::clone(&envelope.delivery.lease));
        let refusal = if *lease == *envelope.delivery.lease {
            self.lanes[lane].closed.clone()
        } else {
            Some(QueueError::OtherLease { serves: lease.partition().clone() }.into())
        };
        if let Some(error) = refusal {
            // Its place is held until the answer is taken, as all are.
            let slot = self.slots.insert(Slot { bytes, answer: Answer::Given(Err(error)) });
            return (slot, Some(envelope));
        }
        let slot = self.slots.insert(Slot { bytes, answer: Answer::Awaited(None) });
        self.lanes[lane].waiting.push_back(Envelope { slot, ..envelope });
        (slot, None)
    }

    pub(super) fn is_closed(&self, lane: usize) -> bool {
        self.lanes[lane].closed.is_some()
    }

    /// Takes what waits in a lane, up to the limits, if anything does.
    pub(super) fn take(
        &mut self,
        lane: usize,
        limits: Limits,
        slots: &mut Vec<usize>,
    ) -> Option<Taken<T>> {
        let waiting = &mut self.lanes[lane].waiting;
        let first = waiting.pop_front()?;
        let room = waiting.len().min(limits.records - 1);
        let mut deliveries = Vec::with_capacity(1 + room);
        let mut bytes = first.bytes;
        slots.push(first.slot);
        deliveries.push(first.delivery);
        for _ in 0..room {
            let fits = |next: &mut Envelope<T>| bytes + next.bytes <= limits.bytes;
            let Some(next) = waiting.pop_front_if(fits) else { break };
            bytes += next.bytes;
            slots.push(next.slot);
            deliveries.push(next.delivery);
        }
        Some(Taken { deliveries, span: first.span })
    }

    /// Puts an answer into a slot, and collects who waits for it.
    pub(super) fn give(
        &mut self,
        slot: usize,
        result: Result<Outcome, Error>,
        wakes: &mut Vec<Waker>,
    ) {
        match mem::replace(&mut self.slots[slot].answer, Answer::Given(result)) {
            Answer::Awaited(waker) => wakes.extend(waker),
            Answer::Deserted => drop(self.vacate(slot)),
            Answer::Given(_) => unreachable!("a delivery is answered once"),
        }
    }

    /// Closes a lane, and returns what waited in it, answered.
    pub(super) fn close(
        &mut self,
        lane: usize,
        reason: &Error,
        wakes: &mut Vec<Waker>,
    ) -> VecDeque<Envelope<T>> {
        let closing = &mut self.lanes[lane];
        // The first reason is the one that counts.
        closing.closed.get_or_insert_with(|| reason.clone());
        wakes.extend(closing.worker.take());
        let left = mem::take(&mut closing.waiting);
        left.iter().for_each(|envelope| self.give(envelope.slot, Err(reason.clone()), wakes));
        left
    }

    /// Gives a place back, with the answer that was in its slot.
    pub(super) fn vacate(&mut self, slot: usize) -> Answer {
        let Slot { bytes, answer } = self.slots.remove(slot);
        self.records -= 1;
        self.bytes -= bytes;
        answer
    }

    pub(super) fn open_door(&mut self) -> usize {
        self.doors.insert(None)
    }

    /// Leaves a waker at a door, and returns one to be dropped.
    pub(super) fn wait_at(&mut self, door: usize, waker: &Waker) -> Option<Waker> {
        let waiting = &mut self.doors[door];
        if waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
            return None;
        }
        let stale = waiting.replace(waker.clone());
        self.waiting += usize::from(stale.is_none());
        stale
    }

    /// Closes a door, and returns a waker to be dropped.
    pub(super) fn close_door(&mut self, door: usize) -> Option<Waker> {
        let stale = self.doors.remove(door);
        self.waiting -= usize::from(stale.is_some());
        stale
    }

    /// Who waits for a place, if there is one now: all of them.
    ///
    /// The first one is apart because there is seldom another, and a list of
    /// one would be an allocation for each delivery.
    pub(super) fn doors_to_wake(&mut self) -> Option<(Waker, Vec<Waker>)> {
        if self.waiting == 0 || !self.has_room() {
            return None;
        }
        self.waiting = 0;
        let mut waiting = self.doors.iter_mut().filter_map(|(_, waker)| waker.take());
        waiting.next().map(|first| (first, waiting.collect()))
    }

    /// How what is in flight has changed since the metrics were told.
    pub(super) fn publish(&mut self) -> Change {
        let to = InFlight { records: self.slots.len(), bytes: self.bytes };
        Change { from: mem::replace(&mut self.published, to), to }
    }

    /// Takes back what the metrics were told.
    pub(super) fn withdraw(&mut self) -> Change {
        Change { from: mem::take(&mut self.published), to: InFlight::default() }
    }
}
