//! An assignment's task: it delivers records to a stack, and takes its answers.

mod deliver;
mod load;

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    thread::Thread,
};

use futures_util::FutureExt as _;
use tidegate_core::{Class, Delivery, Error, Frontier, IsRecorded, Lease, Record};
use tokio::{
    runtime::Handle,
    sync::mpsc::Receiver,
    task::{AbortHandle, coop::unconstrained},
};
use tower_service::Service;
use tracing::{Instrument as _, Span};

pub(crate) use self::load::Load;
use crate::Assignment;

/// What comes out of a partition's queue, in its order.
#[derive(Debug)]
pub(crate) enum Item {
    Record(Record),
    /// The log ends here, for now: the offset of a record that is still to come.
    End(i64),
}

/// All that a task works with.
pub(crate) struct Work {
    /// The `Arc` that deliveries share: the driver counts it.
    pub(crate) lease: Arc<Lease>,
    pub(crate) frontier: Frontier,
    pub(crate) chunks: Receiver<Vec<Item>>,
    pub(crate) load: Arc<Load>,
    pub(crate) reports: Reports,
}

/// What a task tells the driver.
pub(crate) struct Report {
    pub(crate) lease: Lease,
    pub(crate) what: Reported,
}

pub(crate) enum Reported {
    /// A delivery failed under an active lease. What runs goes on.
    Failed(Error),
    /// Nothing runs any more.
    Ended,
}

/// Where a task tells it.
#[derive(Clone)]
pub(crate) struct Reports {
    sender: Sender<Report>,
    driver: Arc<Thread>,
}

/// Starts the task of an assignment.
pub(crate) type Spawn = Box<dyn FnMut(Work, Span) -> Running + Send>;

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(AbortHandle);

/// The application panicked while it built or ran a stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// What panicked: `the make-service` or `the stack`.
    pub place: &'static str,
    /// The panic's message.
    pub message: String,
}

// ===== impl Reports =====

impl Reports {
    pub(crate) fn new(sender: Sender<Report>, driver: Arc<Thread>) -> Self {
        Self { sender, driver }
    }

    fn send(&self, lease: &Lease, what: Reported) {
        // Without a driver there is nobody to tell.
        let _ = self.sender.send(Report { lease: lease.clone(), what });
        self.driver.unpark();
    }
}

// ===== impl Running =====

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the function that starts tasks on a runtime.
pub(crate) fn spawner<M, S>(runtime: Handle, make_service: M) -> Spawn
where
    M: FnMut(Assignment) -> S + Send + 'static,
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>> + Send + 'static,
    S::Future: Send,
{
    let make_service = Arc::new(Mutex::new(make_service));
    Box::new(move |work, span| {
        let make_service = Arc::clone(&make_service);
        // Unconstrained: else Tokio's budget ends after 128 answers, whose
        // futures then look pending, while intake goes on. It yields by itself.
        let task = unconstrained(run(make_service, work)).instrument(span.or_current());
        Running(runtime.spawn(task).abort_handle())
    })
}

async fn run<M, S>(make_service: Arc<Mutex<M>>, mut work: Work)
where
    M: FnMut(Assignment) -> S,
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>>,
{
    let lease = Lease::clone(&work.lease);
    let reports = work.reports.clone();
    let assignment = Assignment::new(lease.clone(), work.frontier.clone());
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
        // A make-service that panicked may be called again: it says itself what
        // its state is worth.
        (make_service.lock().unwrap_or_else(PoisonError::into_inner))(assignment)
    }));
    match made {
        Ok(stack) => {
            let delivered = AssertUnwindSafe(deliver::deliver(stack, &mut work)).catch_unwind();
            if let Err(panic) = delivered.await {
                reports.send(&lease, Reported::Failed(panicked("the stack", &*panic)));
            }
        }
        Err(panic) => reports.send(&lease, Reported::Failed(panicked("the make-service", &*panic))),
    }
    // The stack is gone by now, with all that it held.
    reports.send(&lease, Reported::Ended);
}

fn panicked(place: &'static str, panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("it gave no message").to_owned();
    Error::new(Class::Fatal, Panicked { place, message })
}
