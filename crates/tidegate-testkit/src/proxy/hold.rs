use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{Message, Toward};
use crate::gate::Gate;

/// Traffic that a proxy holds at one message, or loses.
///
/// It holds each connection on which the message comes. Dropping it releases
/// them, and loses no more.
#[must_use = "traffic that nobody holds is released"]
pub struct HeldTraffic {
    holds: Holds,
    hold: Arc<Hold>,
}

/// A message, or its answer, did not come in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such {} came within {} ms", what, deadline.as_millis())]
#[non_exhaustive]
pub struct NoTraffic {
    /// What did not come.
    pub what: &'static str,
    /// How long was waited.
    pub deadline: Duration,
}

/// What is held, and where.
#[derive(Clone, Default)]
pub(super) struct Holds {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    all: Mutex<Vec<Arc<Hold>>>,
    // Read without the lock, for each message.
    armed: AtomicUsize,
}

pub(super) struct Hold {
    pub(super) toward: Toward,
    /// The message is thrown away, and holds up nothing.
    pub(super) loses: bool,
    message: Message,
    /// The message came, and was passed on if replies are held.
    pub(super) came: Gate<()>,
    /// Something waits to be passed on.
    pub(super) waits: Gate<()>,
    // Whether what waits is to be thrown away, with its connection.
    cut: watch::Sender<bool>,
}

// ===== impl Holds =====

impl Holds {
    pub(super) fn arm(&self, toward: Toward, message: Message) -> HeldTraffic {
        self.keep(toward, message, false)
    }

    /// Throws requests away.
    pub(super) fn lose(&self, message: Message) -> HeldTraffic {
        self.keep(Toward::Server, message, true)
    }

    fn keep(&self, toward: Toward, message: Message, loses: bool) -> HeldTraffic {
        let (came, waits) = (Gate::default(), Gate::default());
        let hold = Hold { toward, loses, message, came, waits, cut: watch::Sender::default() };
        let hold = Arc::new(hold);
        let mut all = self.lock();
        all.push(Arc::clone(&hold));
        self.shared.armed.store(all.len(), Ordering::Release);
        drop(all);
        HeldTraffic { holds: self.clone(), hold }
    }

    /// What holds a message of a client.
    pub(super) fn of(&self, message: &[u8]) -> Vec<Arc<Hold>> {
        if self.shared.armed.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.lock().iter().filter(|hold| hold.message.is(message)).cloned().collect()
    }

    fn disarm(&self, hold: &Arc<Hold>) {
        let mut all = self.lock();
        all.retain(|it| !Arc::ptr_eq(it, hold));
        self.shared.armed.store(all.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Hold>>> {
        self.shared.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ===== impl Hold =====

impl Hold {
    /// Waits until it is released; `false` if the connection is to be closed.
    pub(super) async fn released(&self) -> bool {
        self.waits.pass(()).await;
        !*self.cut.borrow()
    }
}

// ===== impl HeldTraffic =====

impl HeldTraffic {
    /// Waits until the message came.
    ///
    /// If requests are held or lost, it has not reached the server. If replies
    /// are held, it was passed on; the server may not have read it yet.
    ///
    /// # Errors
    ///
    /// When it did not by `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is held stays held.
    pub async fn reached(&self, deadline: Duration) -> Result<(), NoTraffic> {
        let came = tokio::time::timeout(deadline, self.hold.came.reached()).await;
        came.map_err(|_| NoTraffic { what: "message", deadline })
    }

    /// Waits until the server has said something after the message, which is
    /// held.
    ///
    /// If the client sends one request at a time, that is its answer. If
    /// requests are held or lost, it never comes.
    ///
    /// # Errors
    ///
    /// When it did not by `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is held stays held.
    pub async fn answered(&self, deadline: Duration) -> Result<(), NoTraffic> {
        let missing = NoTraffic { what: "answer", deadline };
        let answered = async {
            match self.hold.toward {
                Toward::Client => self.hold.waits.reached().await,
                Toward::Server => std::future::pending().await,
            }
        };
        tokio::time::timeout(deadline, answered).await.map_err(|_| missing)
    }

    /// How many connections have something that waits here now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.hold.waits.waiting()
    }

    /// Passes on what is held, and holds nothing more.
    pub fn release(self) {
        drop(self);
    }

    /// Throws away what is held, and closes the connections that have it.
    pub fn cut(self) {
        self.hold.cut.send_replace(true);
    }
}

impl Drop for HeldTraffic {
    fn drop(&mut self) {
        self.holds.disarm(&self.hold);
        self.hold.waits.open();
    }
}

impl fmt::Debug for HeldTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldTraffic")
            .field("toward", &self.hold.toward)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
