use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use super::{
    process::Process,
    record::{ProcessRecord, Record},
    signals,
};
use crate::report::note;

/// Everything that was started for one purpose, ended together.
///
/// Clones are handles of the same run. It ends when the last one is dropped,
/// and with a signal.
#[derive(Clone, Debug)]
pub struct Run(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    directory: PathBuf,
    services: PathBuf,
    state: Mutex<State>,
    // Held for as long as this process owns the run. Whoever can lock it knows
    // that the owner is gone, however it went.
    _owned: File,
}

#[derive(Debug)]
struct State {
    record: Record,
    // Nothing is started in a run that is being ended.
    open: bool,
    // How many names of each kind were given out.
    names: BTreeMap<&'static str, usize>,
}

/// A run that was left to itself by [`Run::keep`].
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
    record: Record,
}

// ===== impl Run =====

impl Run {
    /// Begins a run with a folder of its own under `services`.
    ///
    /// Runs under the same folder whose owner was killed are ended first.
    ///
    /// # Errors
    ///
    /// Fails when the folder cannot be made, and when a dead owner's processes
    /// cannot be ended.
    pub fn begin(services: &Path, name: &str) -> Result<Self> {
        let runs = services.join("runs");
        fs::create_dir_all(&runs).with_context(|| format!("creating {}", runs.display()))?;
        let services = fs::canonicalize(services)?;
        let runs = services.join("runs");
        let _alone = lock(&services)?;
        sweep(&runs)?;

        let directory =
            tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&runs)?.keep();
        // PostgreSQL may run as another user.
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        let owned = File::create(directory.join("owner"))?;
        owned.lock()?;
        let record = Record::default();
        record.write(&directory)?;
        let state = Mutex::new(State { record, open: true, names: BTreeMap::new() });
        let inner = Arc::new(Inner { directory, services, state, _owned: owned });
        signals::watch(&inner)?;
        Ok(Self(inner))
    }

    /// The run's folder: data, logs, and the record of what runs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// The folder that runs share, for what is worth keeping between them.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.0.services.join("cache")
    }

    /// Starts a process, which ends at the latest with the run.
    ///
    /// `signal` is what ends it; if that does not do within ten seconds, it is
    /// killed.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started, and when the run is being
    /// ended.
    pub fn spawn(&self, name: &str, command: &mut Command, signal: Signal) -> Result<Process> {
        let mut state = self.0.state();
        if !state.open {
            bail!("{name} is not started: the run is over");
        }
        let process = Process::spawn(self.clone(), name, command, signal)
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        state.record.processes.push(process.record().clone());
        let written = state.record.write(&self.0.directory);
        // A process that is dropped tells the run, for which it needs the state.
        drop(state);
        written?;
        Ok(process)
    }

    /// As [`spawn`](Self::spawn), with no input, and the output in a log.
    ///
    /// # Errors
    ///
    /// See [`spawn`](Self::spawn).
    pub fn spawn_logged(
        &self,
        name: &str,
        command: &mut Command,
        signal: Signal,
    ) -> Result<Process> {
        let path = self.log(name);
        let log = File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("opening {}", path.display()))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.spawn(name, command, signal)
    }

    /// Where the process called `name` writes its output.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.directory.join(format!("{name}.log"))
    }

    /// A name that nothing else in the run has: `kind-1`, `kind-2` and so on.
    #[must_use]
    pub fn name(&self, kind: &'static str) -> String {
        let mut state = self.0.state();
        let count = state.names.entry(kind).or_default();
        *count += 1;
        format!("{kind}-{count}")
    }

    /// Leaves everything running when the handles are dropped.
    ///
    /// `exports` are the addresses, to be found again in [`kept`](Self::kept).
    ///
    /// # Errors
    ///
    /// Fails when the record cannot be written, and when the run is being ended.
    pub fn keep(&self, exports: BTreeMap<String, String>) -> Result<()> {
        let mut state = self.0.state();
        if !state.open {
            bail!("the run is over");
        }
        let record = Record { kept: true, exports, ..state.record.clone() };
        record.write(&self.0.directory)?;
        state.record = record;
        Ok(())
    }

    /// The runs under `services` that were left to themselves.
    ///
    /// # Errors
    ///
    /// Fails when a record cannot be read.
    pub fn kept(services: &Path) -> Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for directory in directories(&services.join("runs"))? {
            match Record::read(&directory)? {
                Some(record) if record.kept => kept.push(Kept { directory, record }),
                _ => {}
            }
        }
        Ok(kept)
    }

    pub(super) fn is_kept(&self) -> bool {
        self.0.state().record.kept
    }

    pub(super) fn forget(&self, process: &ProcessRecord) {
        self.change(|record| record.processes.retain(|other| other != process));
    }

    /// Remembers a project of `docker compose`, to be ended with the run.
    pub(super) fn add_project(&self, project: &str) {
        self.change(|record| {
            if !record.projects.iter().any(|other| other == project) {
                record.projects.push(project.to_owned());
            }
        });
    }

    /// Makes a folder elsewhere that everybody may enter, removed with the run.
    pub(super) fn add_directory(&self, parent: &Path) -> Result<PathBuf> {
        let directory = tempfile::Builder::new().prefix("tidegate-").tempdir_in(parent);
        let directory =
            directory.with_context(|| format!("making a folder in {}", parent.display()))?.keep();
        self.change(|record| record.directories.push(directory.clone()));
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(directory)
    }

    fn change(&self, change: impl FnOnce(&mut Record)) {
        let mut state = self.0.state();
        change(&mut state.record);
        if state.open
            && let Err(error) = state.record.write(&self.0.directory)
        {
            note(&format!("{error:#}"));
        }
    }
}

// ===== impl Inner =====

impl Inner {
    /// Ends the run, once. Whoever comes second waits for the first.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if state.record.kept || !state.open {
            return;
        }
        state.open = false;
        if let Err(error) = state.record.end(&self.directory) {
            note(&format!("{error:#}"));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step, so that it is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

// ===== impl Kept =====

impl Kept {
    /// The addresses that were given to [`Run::keep`].
    #[must_use]
    pub fn exports(&self) -> &BTreeMap<String, String> {
        &self.record.exports
    }

    /// Whether every process of it still runs. Containers are not asked.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.record.is_whole()
    }

    /// Ends it and removes what it left.
    ///
    /// # Errors
    ///
    /// Fails when a process does not end, or a folder cannot be removed.
    pub fn end(&self) -> Result<()> {
        self.record.end(&self.directory)
    }
}

/// Lets one process at a time begin or clean up runs.
fn lock(services: &Path) -> Result<File> {
    let file = File::create(services.join("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Ends the runs whose owner is gone.
fn sweep(runs: &Path) -> Result<()> {
    for directory in directories(runs)? {
        let owned = File::open(directory.join("owner"));
        if owned.is_ok_and(|owned| owned.try_lock().is_err()) {
            continue;
        }
        let record = Record::read(&directory)?.unwrap_or_default();
        if !record.kept {
            record.end(&directory)?;
        }
    }
    Ok(())
}

fn directories(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", parent.display())),
    };
    let mut directories = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    directories.sort();
    Ok(directories)
}
