use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus},
};

use anyhow::{Context as _, Result};
use nix::{sys::signal::Signal, unistd::Pid};

use super::{identity::birth, record::ProcessRecord, run::Run};

/// A process of a run, ended when it is dropped.
///
/// It leads a process group of its own, so that a Ctrl-C in the terminal does
/// not reach it past its run, and so that what it starts ends with it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    record: ProcessRecord,
    run: Run,
}

// ===== impl Process =====

impl Process {
    /// Starts a process. Called by the run, with its record in hand.
    pub(super) fn spawn(
        run: Run,
        name: &str,
        command: &mut Command,
        signal: Signal,
    ) -> std::io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let pid = child.id().try_into().expect("process ids are positive and fit");
        // One that has ended already cannot be told from another by its birth,
        // and need not be.
        let birth = birth(Pid::from_raw(pid)).unwrap_or_default();
        let record =
            ProcessRecord { name: name.to_owned(), pid, birth, signal: signal.to_string() };
        Ok(Self { child, record, run })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The handle of the standard library, to take its pipes.
    ///
    /// Do not kill or wait through it: [`signal`](Self::signal) and
    /// [`wait`](Self::wait) tell the run as well.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to the process and those it started.
    pub fn signal(&self, signal: Signal) {
        self.record.signal(signal);
    }

    /// How the process ended, if it has.
    ///
    /// # Errors
    ///
    /// Fails when the system cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("asking for {}", self.record.name))
    }

    /// Waits for the process to end by itself.
    ///
    /// # Errors
    ///
    /// Fails when the system cannot tell.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().with_context(|| format!("waiting for {}", self.record.name))
    }

    pub(super) fn record(&self) -> &ProcessRecord {
        &self.record
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.run.is_kept() {
            return;
        }
        // A failure leaves the record, and with it the process to whoever ends
        // the run.
        if self.record.end().is_ok() {
            let _ = self.child.wait();
            self.run.forget(&self.record);
        }
    }
}
