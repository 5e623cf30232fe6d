//! How a source is told to end.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use tokio::time::Instant;

/// Asked once, by whoever holds a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicU8,
    // Whom to wake.
    thread: Mutex<Option<Thread>>,
}

const DRAIN: u8 = 1;
const ABANDON: u8 = 2;

impl Stop {
    /// Asks for a drain and an orderly end.
    pub(crate) fn ask(&self) {
        self.raise(DRAIN);
    }

    /// Asks for an end at once.
    pub(crate) fn abandon(&self) {
        self.raise(ABANDON);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.shared.asked.load(Ordering::Acquire) >= DRAIN
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.shared.asked.load(Ordering::Acquire) >= ABANDON
    }

    /// Makes the current thread the one to be woken.
    pub(crate) fn wake_me(&self) {
        *self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(thread::current());
    }

    /// Waits for `time`, or until it is asked. Returns whether it is.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_asked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }

    fn raise(&self, to: u8) {
        self.shared.asked.fetch_max(to, Ordering::AcqRel);
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }
}
