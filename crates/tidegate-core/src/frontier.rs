mod recorded;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::recorded::{IsRecorded, Recorded};
use self::window::Window;
use super::{Class, Error, Outcome};

/// Where one lease stands: what is safe to commit.
///
/// It is the offset of the first delivered record that is not complete; when
/// all are, the position after the last one, or the end of the log where that
/// is known to be farther. Contiguity is over *delivered* offsets: a gap
/// between two of them is not a hole.
///
/// A clone is another handle on the same frontier. Admitting and completing a
/// record takes constant time, amortised; memory is held for what lies between
/// the frontier and the last admitted record.
#[derive(Clone, Debug)]
pub struct Frontier {
    window: Arc<Mutex<Window>>,
}

/// Proof that an offset was admitted.
///
/// It is completed by a durable outcome, or else abandoned; dropped means
/// abandoned, and leaves a hole for as long as the lease lives.
#[derive(Debug)]
#[must_use = "a dropped ticket is abandoned"]
pub struct Ticket {
    window: Arc<Mutex<Window>>,
    sequence: u64,
    settled: bool,
}

/// Where a frontier stands, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The frontier: what is safe to commit.
    pub offset: i64,
    /// The lowest offset that may be admitted next.
    pub next: i64,
    /// Admitted, and neither complete nor abandoned.
    pub in_flight: usize,
    /// Incomplete, with complete ones above them.
    pub holes: usize,
    /// Complete, and above the frontier.
    pub complete: usize,
}

/// An offset came that lies before one that came earlier.
///
/// It is not a gap: the log was cut, or the reader has lost its place. The
/// partition stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} came after offset {}", next - 1)]
#[non_exhaustive]
pub struct OutOfOrder {
    /// The offset that came.
    pub offset: i64,
    /// The lowest one that could have come.
    pub next: i64,
}

/// A response was dropped before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response to offset {offset} was dropped before it was done")]
#[non_exhaustive]
pub struct Abandoned {
    /// The offset that is left incomplete.
    pub offset: i64,
}

// ===== impl Frontier =====

impl Frontier {
    /// Starts at the position where the lease starts.
    #[must_use]
    pub fn starting_at(position: i64) -> Self {
        Self { window: Arc::new(Mutex::new(Window::starting_at(position))) }
    }

    /// Admits a delivered offset.
    ///
    /// # Errors
    ///
    /// When offsets go backwards: a rewound partition has a new lease.
    pub fn admit(&self, offset: i64) -> Result<Ticket, OutOfOrder> {
        let sequence = lock(&self.window).admit(offset)?;
        Ok(Ticket { window: Arc::clone(&self.window), sequence, settled: false })
    }

    /// Notes that the log ends at `end`: the offset of a record that is still
    /// to come. It admits nothing.
    ///
    /// When everything delivered is complete, the frontier is at least there,
    /// beyond markers of transactions and aborted records.
    ///
    /// # Errors
    ///
    /// When the log ends before a record that was delivered.
    pub fn end_of_partition(&self, end: i64) -> Result<(), OutOfOrder> {
        lock(&self.window).end_of_partition(end)
    }

    /// The offset that is safe to commit.
    #[must_use]
    pub fn offset(&self) -> i64 {
        lock(&self.window).offset()
    }

    /// Where it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        lock(&self.window).standing()
    }

    /// Closes it, with its lease, and returns the last offset that is safe to
    /// commit.
    ///
    /// A completion that comes after this is late: it changes nothing.
    pub fn close(&self) -> i64 {
        lock(&self.window).close()
    }

    /// Why the first of its tickets was abandoned, if one was before it was
    /// closed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        lock(&self.window).failure()
    }
}

// ===== impl OutOfOrder =====

impl OutOfOrder {
    /// Says that `offset` came where no offset below `next` could come.
    #[must_use]
    pub fn new(offset: i64, next: i64) -> Self {
        Self { offset, next }
    }
}

// ===== impl Ticket =====

impl Ticket {
    /// Completes the ticket: its outcome is durable.
    pub fn complete(mut self, outcome: Outcome) -> Recorded {
        self.settled = true;
        let late = lock(&self.window).complete(self.sequence);
        Recorded::new(outcome, late)
    }

    /// Abandons the ticket, and says why.
    pub fn abandon(mut self, cause: Error) {
        self.settled = true;
        lock(&self.window).abandon(self.sequence, |_| cause);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            let cause = |offset| Error::new(Class::Fatal, Abandoned { offset });
            lock(&self.window).abandon(self.sequence, cause);
        }
    }
}

// A panic elsewhere cannot leave the window half changed: nothing that runs
// under the lock is foreign code.
fn lock(window: &Mutex<Window>) -> MutexGuard<'_, Window> {
    window.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
