//! Ends every run of this process when it is told to end.

use std::{
    io,
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
    low_level::emulate_default_handler,
};

use super::run::Inner;

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The runs of this process; `None` until somebody watches for signals.
static RUNS: Mutex<Option<Vec<Weak<Inner>>>> = Mutex::new(None);

/// How many farewells there are.
static FAREWELLS: Mutex<usize> = Mutex::new(0);

static SAID: Condvar = Condvar::new();

/// How long they may take.
const FAREWELL: Duration = Duration::from_secs(60);

/// Something that is put in order before this process ends: a signal ends its
/// runs, and then waits until this is dropped, or for a minute.
#[derive(Debug)]
#[must_use = "nobody waits for what is dropped at once"]
pub struct Farewell(());

/// Whether this process has been told to end.
///
/// Its runs end then, and the process after them; new processes are refused.
#[must_use]
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Waits for the end of a process that has been told to end.
///
/// For `main`, so that it does not return, and cut the ending short, while the
/// runs are being ended on another thread.
pub fn wait_for_the_end() -> ! {
    loop {
        thread::park();
    }
}

/// Ends `run` when a signal comes.
pub(super) fn watch(run: &Arc<Inner>) -> io::Result<()> {
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if runs.is_none() {
        listen()?;
    }
    let runs = runs.get_or_insert_default();
    runs.retain(|run| run.strong_count() > 0);
    runs.push(Arc::downgrade(run));
    Ok(())
}

fn listen() -> io::Result<()> {
    let ends = [SIGINT, SIGTERM, SIGHUP];
    for signal in ends {
        // A second one does not wait for the ending that the first began.
        flag::register_conditional_default(signal, Arc::clone(&INTERRUPTED))?;
    }
    let mut signals = Signals::new(ends)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            INTERRUPTED.store(true, Ordering::SeqCst);
            end_all();
            wait_for_farewells();
            // Ends this process as the signal would have.
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

fn wait_for_farewells() {
    let waits = SAID.wait_timeout_while(farewells(), FAREWELL, |farewells| *farewells > 0);
    drop(waits.unwrap_or_else(PoisonError::into_inner));
}

fn farewells() -> MutexGuard<'static, usize> {
    FAREWELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_all() {
    let runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    for run in runs.iter().rev().filter_map(Weak::upgrade) {
        run.end();
    }
}

// ===== impl Farewell =====

impl Farewell {
    /// Lets the end of this process wait.
    pub fn begin() -> Self {
        *farewells() += 1;
        Self(())
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        *farewells() -= 1;
        SAID.notify_all();
    }
}
