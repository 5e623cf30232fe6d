//! Points of a stack at which a test stops it, and barriers to do it with.

mod layer;
mod pipe;
mod place;
mod point;
mod service;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use self::{
    layer::{ByRequest, Locate, ProbeLayer},
    pipe::{Command, Event, NotALine},
    place::{Located, NotAPlace, Place, When},
    point::{NotAPoint, Point},
    service::ProbeService,
};
use crate::gate::Gate;

/// What is to happen at the probe points of a process.
///
/// A clone is another handle on the same probes. A test arms them, and the
/// [`ProbeLayer`]s that it has put in the stack look them up. One that is not
/// armed costs a read of an atomic.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_testkit::{Place, Point, Probes, When};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let probes = Probes::new();
/// let held = probes.hold(Point::AfterEffect, When::any().partition(0));
///
/// // What a `ProbeLayer` does.
/// let work = tokio::spawn({
///     let probes = probes.clone();
///     async move { probes.reach(Point::AfterEffect, &[Place::new("transfers", 0, 7)]).await }
/// });
///
/// let places = held.reached(Duration::from_secs(5)).await.expect("the work comes by");
/// assert_eq!(places, [Place::new("transfers", 0, 7)]);
/// assert!(!work.is_finished());
///
/// held.release();
/// work.await.expect("it goes on");
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Probes {
    shared: Arc<Shared>,
}

/// A barrier at a probe point: what comes by waits until it is released.
///
/// Dropping it releases it.
#[derive(Debug)]
#[must_use = "a barrier that is dropped is released"]
pub struct Held {
    probes: Probes,
    trap: u64,
    point: Point,
    when: When,
    gate: Arc<Gate<Vec<Place>>>,
}

/// Nothing came to a barrier in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing came to {point} for {when} within {} ms", deadline.as_millis())]
#[non_exhaustive]
pub struct NotReached {
    /// Where the barrier stands.
    pub point: Point,
    /// What it is for.
    pub when: When,
    /// How long was waited.
    pub deadline: Duration,
}

#[derive(Default)]
struct Shared {
    traps: Mutex<Traps>,
    // Read without the lock, by each request that passes a probe.
    armed: [AtomicUsize; Point::ALL.len()],
}

#[derive(Default)]
struct Traps {
    next: u64,
    all: Vec<Trap>,
}

struct Trap {
    id: u64,
    point: Point,
    when: When,
    action: Action,
}

#[derive(Clone)]
enum Action {
    Hold(Arc<Gate<Vec<Place>>>),
    Panic,
    Exit(i32),
}

// ===== impl Probes =====

impl Probes {
    /// Arms nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds all that comes to a point, until the barrier is released.
    pub fn hold(&self, point: Point, when: When) -> Held {
        let gate = Arc::<Gate<_>>::default();
        let trap = self.arm(point, when.clone(), Action::Hold(Arc::clone(&gate)));
        Held { probes: self.clone(), trap, point, when, gate }
    }

    /// Lets the work that comes to a point panic, until [`disarm`](Self::disarm).
    pub fn panic(&self, point: Point, when: When) {
        self.arm(point, when, Action::Panic);
    }

    /// Ends the process, with this status, when work comes to a point.
    ///
    /// Nothing is dropped and nothing is flushed that the process itself would
    /// have to.
    pub fn exit(&self, point: Point, when: When, status: i32) {
        self.arm(point, when, Action::Exit(status));
    }

    /// Forgets all that was armed at a point, and releases what is held there.
    pub fn disarm(&self, point: Point) {
        let mut traps = self.lock();
        for trap in traps.all.iter().filter(|trap| trap.point == point) {
            if let Action::Hold(gate) = &trap.action {
                gate.open();
            }
        }
        traps.all.retain(|trap| trap.point != point);
        self.count(&traps);
    }

    /// Does what is armed at a point, for work on these records.
    ///
    /// For places that no layer stands at: a handler of the test's own, or a
    /// driver.
    ///
    /// # Panics
    ///
    /// When that is armed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the barrier forgets what waited.
    pub async fn reach(&self, point: Point, places: &[Place]) {
        if !self.is_armed(point) {
            return;
        }
        // Again after each barrier: another one may stand behind it.
        let mut passed = Vec::new();
        while let Some((trap, action)) = self.find(point, places, &passed) {
            passed.push(trap);
            match action {
                Action::Hold(gate) => gate.pass(places.to_vec()).await,
                Action::Panic => panic!("a test panics at {point}"),
                Action::Exit(status) => std::process::exit(status),
            }
        }
    }

    fn is_armed(&self, point: Point) -> bool {
        self.shared.armed[point as usize].load(Ordering::Acquire) > 0
    }

    /// Whether something waits at a point for work on these records.
    fn catches(&self, point: Point, places: impl FnOnce() -> Vec<Place>) -> Option<Vec<Place>> {
        if !self.is_armed(point) {
            return None;
        }
        let places = places();
        self.find(point, &places, &[]).map(|_| places)
    }

    fn find(&self, point: Point, places: &[Place], passed: &[u64]) -> Option<(u64, Action)> {
        let traps = self.lock();
        let mut traps = traps.all.iter().filter(|trap| !passed.contains(&trap.id));
        let trap = traps.find(|trap| trap.point == point && trap.when.is_any_of(places))?;
        Some((trap.id, trap.action.clone()))
    }

    fn arm(&self, point: Point, when: When, action: Action) -> u64 {
        let mut traps = self.lock();
        let id = traps.next;
        traps.next += 1;
        traps.all.push(Trap { id, point, when, action });
        self.count(&traps);
        id
    }

    fn remove(&self, id: u64) {
        let mut traps = self.lock();
        traps.all.retain(|trap| trap.id != id);
        self.count(&traps);
    }

    fn count(&self, traps: &Traps) {
        for point in Point::ALL {
            let armed = traps.all.iter().filter(|trap| trap.point == point).count();
            self.shared.armed[point as usize].store(armed, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Traps> {
        self.shared.traps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().all.iter().map(|trap| (trap.point, &trap.when))).finish()
    }
}

// ===== impl Held =====

impl Held {
    /// Waits until something is held, and returns the records that it is about.
    ///
    /// # Errors
    ///
    /// When nothing came by `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is held stays held.
    pub async fn reached(&self, deadline: Duration) -> Result<Vec<Place>, NotReached> {
        let reached = tokio::time::timeout(deadline, self.gate.reached()).await;
        reached.map_err(|_| NotReached { point: self.point, when: self.when.clone(), deadline })
    }

    /// How many requests wait here now.
    ///
    /// One that was dropped while it waited does not.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    /// Lets go what is held, and holds nothing more.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.probes.remove(self.trap);
        self.gate.open();
    }
}
