use std::{collections::VecDeque, mem, task::Waker};

use slab::Slab;

use super::Volume;
use crate::{Error, Outcome};

/// What is under the lock.
pub(super) struct State<I> {
    // Places that are reserved, waiting, running, or answered and not taken;
    // and the bytes of those whose delivery has come.
    held: Volume,
    most: Volume,
    // One for each intake, with its waker while it waits for a place; and how
    // many do.
    doors: Slab<Option<Waker>>,
    at_doors: usize,
    // One for each delivery, until its answer is taken.
    slots: Slab<Slot>,
    lines: Box<[Line<I>]>,
    // What was last reported to be in flight.
    reported: Volume,
}

/// What waits in a lane, and who waits for it.
struct Line<I> {
    waiting: VecDeque<Waiting<I>>,
    taker: Option<Waker>,
    // Why it takes no more.
    closed: Option<Error>,
}

struct Waiting<I> {
    item: I,
    bytes: usize,
    slot: usize,
}

/// Where the answer to a delivery is put.
struct Slot {
    bytes: usize,
    reply: Reply,
}

/// An answer that was given, or who waits for it.
pub(super) enum Reply {
    Awaited(Option<Waker>),
    Given(Result<Outcome, Error>),
    // Its `Answer` was dropped, while the delivery waits or runs.
    Deserted,
}

// ===== impl State =====

impl<I> State<I> {
    pub(super) fn new(lanes: usize, most: Volume) -> Self {
        let line = |_| Line { waiting: VecDeque::new(), taker: None, closed: None };
        Self {
            held: Volume::default(),
            most,
            doors: Slab::new(),
            at_doors: 0,
            slots: Slab::new(),
            lines: (0..lanes).map(line).collect(),
            reported: Volume::default(),
        }
    }

    pub(super) fn open_door(&mut self) -> usize {
        self.doors.insert(None)
    }

    /// Closes a door, and gives the place back that was reserved there. Returns
    /// a waker to be dropped.
    pub(super) fn close_door(&mut self, door: usize, reserved: bool) -> Option<Waker> {
        self.held.records -= usize::from(reserved);
        let stale = self.doors.remove(door);
        self.at_doors -= usize::from(stale.is_some());
        stale
    }

    /// Reserves a place, or leaves a waker at the door and returns one to be
    /// dropped.
    pub(super) fn reserve(&mut self, door: usize, waker: &Waker) -> Result<(), Option<Waker>> {
        if self.has_room() {
            self.held.records += 1;
            return Ok(());
        }
        let waiting = &mut self.doors[door];
        self.at_doors += usize::from(waiting.is_none());
        Err(leave(waiting, waker))
    }

    /// Who waits for a place, if there is one now: all of them, so that no wake
    /// is spent on somebody who has gone.
    ///
    /// The first one is apart because there is seldom another, and a list of
    /// one would be an allocation for each delivery.
    pub(super) fn doors_to_wake(&mut self) -> Option<(Waker, Vec<Waker>)> {
        if self.at_doors == 0 || !self.has_room() {
            return None;
        }
        self.at_doors = 0;
        let mut waiting = self.doors.iter_mut().filter_map(|(_, waker)| waker.take());
        waiting.next().map(|first| (first, waiting.collect()))
    }

    /// Puts a delivery into a lane, and returns the slot of its answer, with
    /// who is to be woken; with itself, where the lane is closed.
    pub(super) fn push(
        &mut self,
        lane: usize,
        item: I,
        bytes: usize,
    ) -> (usize, Result<Option<Waker>, I>) {
        let line = &mut self.lines[lane];
        if let Some(reason) = &line.closed {
            let reason = reason.clone();
            return (self.occupy(bytes, Reply::Given(Err(reason))), Err(item));
        }
        let taker = line.taker.take();
        let slot = self.occupy(bytes, Reply::Awaited(None));
        self.lines[lane].waiting.push_back(Waiting { item, bytes, slot });
        (slot, Ok(taker))
    }

    /// Makes a slot for a delivery whose place was reserved.
    pub(super) fn occupy(&mut self, bytes: usize, reply: Reply) -> usize {
        self.held.bytes += bytes;
        self.slots.insert(Slot { bytes, reply })
    }

    /// Gives the place of a delivery back, with what was in its slot.
    fn vacate(&mut self, slot: usize) -> Reply {
        let Slot { bytes, reply } = self.slots.remove(slot);
        self.held.records -= 1;
        self.held.bytes -= bytes;
        reply
    }

    /// Takes what waits in a lane, with the slots of the answers, if the lane is
    /// not closed; or leaves a waker and returns one to be dropped.
    pub(super) fn take(
        &mut self,
        lane: usize,
        most: Volume,
        items: &mut Vec<I>,
        slots: &mut VecDeque<usize>,
        waker: &Waker,
    ) -> Result<(), Option<Waker>> {
        let Line { waiting, taker, closed } = &mut self.lines[lane];
        if closed.is_some() {
            return Ok(());
        }
        let Some(first) = waiting.pop_front() else { return Err(leave(taker, waker)) };
        let mut bytes = first.bytes;
        slots.push_back(first.slot);
        items.push(first.item);
        for _ in 1..most.records {
            let fits = |next: &mut Waiting<I>| bytes + next.bytes <= most.bytes;
            let Some(next) = waiting.pop_front_if(fits) else { break };
            bytes += next.bytes;
            slots.push_back(next.slot);
            items.push(next.item);
        }
        Ok(())
    }

    /// Puts an answer into a slot, and adds who waits for it to `wakes`.
    pub(super) fn give(
        &mut self,
        slot: usize,
        result: Result<Outcome, Error>,
        wakes: &mut Vec<Waker>,
    ) {
        match mem::replace(&mut self.slots[slot].reply, Reply::Given(result)) {
            Reply::Awaited(waker) => wakes.extend(waker),
            Reply::Deserted => drop(self.vacate(slot)),
            Reply::Given(_) => unreachable!("a delivery is answered once"),
        }
    }

    /// Closes a lane, and returns what waited in it, answered, to be dropped.
    pub(super) fn close(&mut self, lane: usize, reason: &Error, wakes: &mut Vec<Waker>) -> Vec<I> {
        let line = &mut self.lines[lane];
        // The first reason is the one that counts.
        line.closed.get_or_insert_with(|| reason.clone());
        wakes.extend(line.taker.take());
        let left = mem::take(&mut line.waiting);
        let answered = |Waiting { item, slot, .. }| {
            self.give(slot, Err(reason.clone()), wakes);
            item
        };
        left.into_iter().map(answered).collect()
    }

    /// Takes the answer that is in a slot, and with it frees the place; or
    /// leaves a waker and returns one to be dropped.
    pub(super) fn answer(
        &mut self,
        slot: usize,
        waker: &Waker,
    ) -> Result<Result<Outcome, Error>, Option<Waker>> {
        if let Reply::Awaited(waiting) = &mut self.slots[slot].reply {
            return Err(leave(waiting, waker));
        }
        let Reply::Given(result) = self.vacate(slot) else {
            unreachable!("only the drop of its answer deserts a slot")
        };
        Ok(result)
    }

    /// Notes that nobody waits for the answer in a slot any more. Returns what
    /// was in it, to be dropped.
    pub(super) fn desert(&mut self, slot: usize) -> Reply {
        let reply = &mut self.slots[slot].reply;
        if matches!(reply, Reply::Awaited(_)) {
            return mem::replace(reply, Reply::Deserted);
        }
        self.vacate(slot)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// What was last reported to be in flight, and what is now, if they differ.
    pub(super) fn report(&mut self) -> Option<(Volume, Volume)> {
        self.change(Volume { records: self.slots.len(), bytes: self.held.bytes })
    }

    /// Takes back what was last reported.
    pub(super) fn withdraw(&mut self) -> Option<(Volume, Volume)> {
        self.change(Volume::default())
    }

    fn change(&mut self, now: Volume) -> Option<(Volume, Volume)> {
        let before = mem::replace(&mut self.reported, now);
        (before != now).then_some((before, now))
    }

    fn has_room(&self) -> bool {
        self.held.records < self.most.records && self.held.bytes < self.most.bytes
    }
}

/// Leaves a waker, and returns one to be dropped.
fn leave(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if place.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
        return None;
    }
    place.replace(waker.clone())
}
