use std::collections::VecDeque;

use super::{OutOfOrder, Standing};
use crate::Error;

/// What lies between the frontier and the last admitted offset.
#[derive(Debug)]
pub(super) struct Window {
    // Oldest first; the first one is not complete.
    slots: VecDeque<Slot>,
    // The sequence number of the first slot.
    first: u64,
    // The lowest offset that may be admitted next.
    next: i64,
    in_flight: usize,
    complete: usize,
    failure: Option<Error>,
    // Where it stood when its lease ended.
    closed: Option<i64>,
}

#[derive(Debug)]
struct Slot {
    offset: i64,
    complete: bool,
}

impl Window {
    pub(super) fn starting_at(position: i64) -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            next: position,
            in_flight: 0,
            complete: 0,
            failure: None,
            closed: None,
        }
    }

    pub(super) fn admit(&mut self, offset: i64) -> Result<u64, OutOfOrder> {
        self.reach(offset, offset + 1)?;
        let sequence = self.first + self.slots.len() as u64;
        self.slots.push_back(Slot { offset, complete: false });
        self.in_flight += 1;
        Ok(sequence)
    }

    pub(super) fn end_of_partition(&mut self, end: i64) -> Result<(), OutOfOrder> {
        self.reach(end, end)
    }

    pub(super) fn offset(&self) -> i64 {
        let front = || self.slots.front().map_or(self.next, |slot| slot.offset);
        self.closed.unwrap_or_else(front)
    }

    pub(super) fn standing(&self) -> Standing {
        // Looked for when somebody asks, not kept: it would cost each record.
        let highest = self.slots.iter().rposition(|slot| slot.complete).unwrap_or(0);
        let holes = self.slots.iter().take(highest).filter(|slot| !slot.complete).count();
        Standing {
            offset: self.offset(),
            next: self.next,
            in_flight: self.in_flight,
            holes,
            complete: self.complete,
        }
    }

    pub(super) fn close(&mut self) -> i64 {
        let offset = self.offset();
        self.closed = Some(offset);
        self.slots = VecDeque::new();
        self.complete = 0;
        offset
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    /// Completes a ticket, and returns whether it was too late for that.
    pub(super) fn complete(&mut self, sequence: u64) -> bool {
        self.in_flight -= 1;
        if self.closed.is_some() {
            return true;
        }
        let index = self.index(sequence);
        self.slots[index].complete = true;
        self.complete += 1;
        while self.slots.front().is_some_and(|slot| slot.complete) {
            self.slots.pop_front();
            self.first += 1;
            self.complete -= 1;
        }
        false
    }

    pub(super) fn abandon(&mut self, sequence: u64, cause: impl FnOnce(i64) -> Error) {
        self.in_flight -= 1;
        if self.closed.is_none() && self.failure.is_none() {
            let offset = self.slots[self.index(sequence)].offset;
            self.failure = Some(cause(offset));
        }
    }

    /// Moves on to `next`, past `offset`.
    fn reach(&mut self, offset: i64, next: i64) -> Result<(), OutOfOrder> {
        if offset < self.next {
            return Err(OutOfOrder { offset, next: self.next });
        }
        self.next = next;
        Ok(())
    }

    fn index(&self, sequence: u64) -> usize {
        usize::try_from(sequence - self.first).expect("the window fits in memory")
    }
}
