use std::{
    fmt, fs,
    path::Path,
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{process::Process, run::Run, wait};

/// How long a server may take until it answers. Kafka needs two seconds on an
/// idle machine.
const LIMIT: Duration = Duration::from_secs(90);

/// How much of a log is shown when a server does not start.
const TAIL: usize = 20;

/// A server that can be stopped and started again, on the same port and data.
pub struct Server {
    // Ended before the run is let go.
    process: Option<Process>,
    name: String,
    plan: Plan,
    run: Run,
}

/// How a server is started, ended, and known to be there.
pub(super) struct Plan {
    pub(super) command: Box<dyn Fn() -> Command + Send + Sync>,
    pub(super) signal: super::Signal,
    /// Asks the server for something that only a server which is ready answers.
    pub(super) ready: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

// ===== impl Server =====

impl Server {
    pub(super) fn new(run: &Run, name: &str, plan: Plan) -> Self {
        Self { process: None, name: name.to_owned(), plan, run: run.clone() }
    }

    /// The server's name, which is that of its log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process, while the server is started.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Starts the server if it is stopped, and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails, with the end of the log, when the server ends or does not answer
    /// in time.
    pub fn start(&mut self) -> Result<()> {
        self.launch()?;
        self.wait_until_ready()
    }

    /// Starts the server if it is stopped, without waiting for it: several
    /// servers may need each other to be ready.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub fn launch(&mut self) -> Result<()> {
        if self.process.is_none() {
            let mut command = (self.plan.command)();
            let process = self.run.spawn_logged(&self.name, &mut command, self.plan.signal)?;
            self.process = Some(process);
        }
        Ok(())
    }

    /// Waits until the server answers.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { bail!("{} is stopped", self.name) };
        let log = self.run.log(&self.name);
        let mut last = String::new();
        let ready = wait::unless_interrupted(LIMIT, || {
            if let Some(status) = process.ended()? {
                bail!("{} ended while it started, with {status}\n{}", self.name, tail(&log));
            }
            match (self.plan.ready)() {
                Ok(()) => Ok(Some(())),
                Err(error) => {
                    last = format!("{error:#}");
                    Ok(None)
                }
            }
        })?;
        ready.with_context(|| {
            let seconds = LIMIT.as_secs();
            format!("{} did not answer within {seconds} s: {last}\n{}", self.name, tail(&log))
        })
    }

    /// Sends a signal, and waits for the server to end by it.
    ///
    /// The data and the port stay, for [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// Fails when the server is stopped already, and when the system cannot tell
    /// how it ended.
    pub fn stop(&mut self, signal: super::Signal) -> Result<ExitStatus> {
        let Some(process) = &mut self.process else { bail!("{} is stopped already", self.name) };
        process.signal(signal);
        let status = process.wait()?;
        self.process = None;
        Ok(status)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("process", &self.process.as_ref().map(Process::id))
            .finish_non_exhaustive()
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let mut tail = format!("the end of {}:", log.display());
    for line in &lines[lines.len().saturating_sub(TAIL)..] {
        tail.push_str("\n  ");
        tail.push_str(line);
    }
    tail
}
