//! Ends every run of this process when it is told to end.

use std::{
    io,
    sync::{
        Arc, LazyLock, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
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
            // Ends this process as the signal would have.
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

fn end_all() {
    let runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    for run in runs.iter().rev().filter_map(Weak::upgrade) {
        run.end();
    }
}
