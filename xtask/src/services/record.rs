//! What a run has started, on disk, so that another process can end it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use super::{compose, identity::birth, wait};

const FILE: &str = "run.json";

/// How long a process may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// Everything that a run has started and not ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Whether it shall outlive the process that started it.
    pub(super) kept: bool,
    /// The addresses, as variables of the environment.
    pub(super) exports: BTreeMap<String, String>,
    pub(super) processes: Vec<ProcessRecord>,
    /// Projects of `docker compose`.
    pub(super) projects: Vec<String>,
    /// Folders outside that of the run.
    pub(super) directories: Vec<PathBuf>,
}

/// A process with a group of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    pub(super) name: String,
    pub(super) pid: i32,
    pub(super) birth: String,
    /// The signal that ends it.
    pub(super) signal: String,
}

// ===== impl Record =====

impl Record {
    /// Reads the record of the run in `directory`, if it has one.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>> {
        let file = directory.join(FILE);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        };
        let record = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no record of a run", file.display()))?;
        Ok(Some(record))
    }

    /// Writes the record, whole or not at all.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let fresh = directory.join("run.json.new");
        let write = || {
            // It holds the database's password.
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            fs::rename(&fresh, directory.join(FILE))
        };
        write().with_context(|| format!("writing the record of {}", directory.display()))
    }

    /// Ends and removes everything, the run's own folder last.
    ///
    /// # Errors
    ///
    /// Fails with the first thing that could not be ended; the rest is ended all
    /// the same, and the folder stays, so that it can be tried again.
    pub(super) fn end(&self, directory: &Path) -> Result<()> {
        let mut result = Ok(());
        for process in self.processes.iter().rev() {
            result = result.and(process.end());
        }
        for project in &self.projects {
            result = result.and(compose::down(project));
        }
        result?;
        for directory in self.directories.iter().map(PathBuf::as_path).chain([directory]) {
            remove(directory)?;
        }
        Ok(())
    }

    /// Whether every process still runs.
    pub(super) fn is_whole(&self) -> bool {
        self.processes.iter().all(ProcessRecord::is_alive)
    }
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

// ===== impl ProcessRecord =====

impl ProcessRecord {
    /// Whether the process runs, and is the one that was started.
    pub(super) fn is_alive(&self) -> bool {
        birth(self.group()).is_some_and(|birth| birth == self.birth)
    }

    /// Sends a signal to the process and those it started, if it still runs.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end between the two, which is what was wanted.
            let _ = killpg(self.group(), signal);
        }
    }

    /// Ends the process, if it still runs.
    pub(super) fn end(&self) -> Result<()> {
        let signal = self.signal.parse().unwrap_or(Signal::SIGKILL);
        self.signal(signal);
        // A stopped process takes no other signal before it goes on.
        self.signal(Signal::SIGCONT);
        if self.is_gone_within(GRACE)? {
            return Ok(());
        }
        self.signal(Signal::SIGKILL);
        if self.is_gone_within(GRACE)? {
            return Ok(());
        }
        anyhow::bail!("{} (process {}) does not end", self.name, self.pid)
    }

    fn is_gone_within(&self, limit: Duration) -> Result<bool> {
        Ok(wait::until(limit, || Ok((!self.is_alive()).then_some(())))?.is_some())
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.pid)
    }
}
