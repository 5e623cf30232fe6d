//! A worker process, as the lab sees it.

mod state;

use std::{
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tidegate_testkit::{Command as Order, Place, Point, When};
use tokio::{
    fs::File,
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::Mutex as AsyncMutex,
    time::sleep,
};
use xtask::services::{Process, Run};

use self::state::Shared;
pub(crate) use self::state::{Counters, Standing, State};
use crate::{
    says,
    services::Lacking,
    worker::{Arguments, Logged, UP},
};

/// How long anything may take that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A worker process.
///
/// It is ended when this is dropped.
pub(crate) struct Member {
    name: String,
    shared: Arc<Shared>,
    input: AsyncMutex<ChildStdin>,
    process: Mutex<Process>,
    ended: Mutex<Option<ExitStatus>>,
    barriers: AtomicU64,
}

/// A barrier in a worker process.
#[derive(Debug)]
#[must_use = "what it holds waits for its release"]
pub(crate) struct Barrier {
    id: u64,
    point: Point,
    when: When,
}

// ===== impl Member =====

impl Member {
    /// Starts a process, whose log goes to a file as well.
    pub(crate) fn start(run: &Run, arguments: &Arguments, log: File) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("tidegate-lab-worker");
        let mut command = Command::new(program);
        command
            .args(arguments.command_line())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = run.spawn(&arguments.name, &mut command, Signal::SIGKILL)?;
        let child = process.child();
        let lacks = "the pipe was asked for";
        let input = ChildStdin::from_std(child.stdin.take().expect(lacks))?;
        let output = ChildStdout::from_std(child.stdout.take().expect(lacks))?;
        let errors = ChildStderr::from_std(child.stderr.take().expect(lacks))?;
        let shared = Arc::<Shared>::default();
        tokio::spawn(read_lines(output, Arc::clone(&shared)));
        tokio::spawn(read_log(errors, Arc::clone(&shared), log));
        Ok(Self {
            name: arguments.name.clone(),
            shared,
            input: AsyncMutex::new(input),
            process: Mutex::new(process),
            ended: Mutex::default(),
            barriers: AtomicU64::new(1),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.process().id()
    }

    // ===== probes =====

    /// Holds what comes to a point.
    pub(crate) async fn hold(&self, point: Point, when: When) -> Result<Barrier> {
        let id = self.barriers.fetch_add(1, Ordering::Relaxed);
        self.order(Order::Hold { id, point, when: when.clone() }).await?;
        Ok(Barrier { id, point, when })
    }

    /// Waits until something is held, and returns the records that it is about.
    pub(crate) async fn reached(&self, barrier: &Barrier) -> Result<Vec<Place>> {
        let Barrier { id, point, when } = barrier;
        let what = format!("{} comes to {point} for {when}", self.name);
        self.until(&what, |state| state.reached.get(id).cloned()).await
    }

    pub(crate) async fn release(&self, barrier: Barrier) -> Result<()> {
        self.order(Order::Release { id: barrier.id }).await
    }

    /// Tells it to let go what is held, and does not wait: it may be frozen.
    pub(crate) async fn release_later(&self, barrier: Barrier) -> Result<()> {
        self.say(&Order::Release { id: barrier.id }.to_string()).await
    }

    /// Sends an order to the probes, and waits until it is carried out.
    pub(crate) async fn order(&self, order: Order) -> Result<()> {
        self.say(&order.to_string()).await?;
        let what = format!("{} carries `{order}` out", self.name);
        let refusal = order.to_string();
        let done = self
            .until(&what, |state| {
                let done = state.done.contains(&order);
                let refused = state.refused.contains(&refusal);
                (done || refused).then_some(done)
            })
            .await?;
        if !done {
            bail!("{} refuses `{order}`", self.name);
        }
        Ok(())
    }

    async fn say(&self, line: &str) -> Result<()> {
        let mut input = self.input.lock().await;
        let said = input.write_all(format!("{line}\n").as_bytes()).await;
        said.with_context(|| format!("telling {} `{line}`", self.name))
    }

    // ===== what it says =====

    /// Waits until something is so, as far as its lines and its log tell.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        holds: impl FnMut(&State) -> Option<T>,
    ) -> Result<T> {
        self.shared.until(what, PATIENCE, holds).await
    }

    /// Waits until its log has an event behind a place of the log.
    pub(crate) async fn logs(
        &self,
        after: usize,
        message: &str,
        mut is: impl FnMut(&Logged) -> bool,
    ) -> Result<Logged> {
        let what = format!("{} logs `{message}`", self.name);
        self.until(&what, |state| {
            let mut events = state.log.iter().skip(after);
            events.find(|it| it.message == message && is(it)).cloned()
        })
        .await
    }

    /// Waits until it works on a partition.
    pub(crate) async fn works_on(&self, after: usize, partition: &str) -> Result<Logged> {
        let is = |event: &Logged| event.text("partition") == Some(partition);
        self.logs(after, says::STACK_STARTS, is).await
    }

    /// Whether it has worked on any partition.
    pub(crate) fn has_worked(&self) -> bool {
        self.shared.lock().log.iter().any(|event| event.message == says::STACK_STARTS)
    }

    /// Waits until it works on any partition.
    pub(crate) async fn works(&self) -> Result<Logged> {
        self.logs(0, says::STACK_STARTS, |_| true).await
    }

    /// How long its log is now.
    pub(crate) fn mark(&self) -> usize {
        self.shared.lock().log.len()
    }

    /// When it had said its last, in milliseconds since the Unix epoch.
    pub(crate) fn silent_since(&self) -> Option<i64> {
        self.shared.lock().silent_since
    }

    pub(crate) fn log(&self) -> Vec<Logged> {
        self.shared.lock().log.clone()
    }

    /// What its layers have counted: now, or last if it has ended.
    pub(crate) async fn counters(&self) -> Result<Counters> {
        let before = self.shared.lock().counted;
        let ended = self.shared.lock().is_silent();
        if !ended {
            self.say("counters").await?;
        }
        let what = format!("{} tells its counters", self.name);
        self.until(&what, |state| {
            let told = state.counted > before || state.is_silent();
            told.then(|| state.counters.clone())
        })
        .await
    }

    /// What it has counted under a name.
    #[expect(clippy::cast_possible_truncation, reason = "it is a count")]
    pub(crate) async fn counted(&self, name: &str) -> Result<i64> {
        Ok(self.counters().await?.get(name).copied().unwrap_or_default() as i64)
    }

    /// How many records had an outcome, as its frontiers have counted.
    pub(crate) async fn outcomes(&self, outcome: &str) -> Result<i64> {
        self.counted(&format!("tidegate_frontier_outcomes_total{{outcome={outcome}}}")).await
    }

    /// How its partitions stand, those that it has.
    pub(crate) async fn status(&self) -> Result<Vec<Standing>> {
        let before = self.shared.lock().told;
        self.say("status").await?;
        let what = format!("{} tells its status", self.name);
        self.until(&what, |state| {
            let told = state.told > before;
            (told || state.is_silent()).then(|| state.status.clone())
        })
        .await
    }

    /// The most that was resident of it so far, in bytes.
    ///
    /// What was resident of the process that started it does not count, as it does
    /// in `getrusage`.
    pub(crate) fn peak_memory(&self) -> Result<i64> {
        let status = format!("/proc/{}/status", self.id());
        let Ok(status) = std::fs::read_to_string(status) else {
            return Err(Lacking("only Linux tells how much of a process is resident").into());
        };
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<i64>().ok());
        kib.map(|kib| kib * 1024).context("the process has ended")
    }

    // ===== signals =====

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Asks it to end, once it listens: before that it would just die.
    pub(crate) async fn ask_to_end(&self) -> Result<()> {
        self.logs(0, UP, |_| true).await?;
        self.signal(Signal::SIGTERM);
        Ok(())
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Result<ExitStatus> {
        // Its pipes close when it ends, and not before.
        self.until(&format!("{} ends", self.name), |state| state.is_silent().then_some(())).await?;
        loop {
            if let Some(status) = self.end_now()? {
                return Ok(status);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// How it ended, if it has.
    pub(crate) fn end_now(&self) -> Result<Option<ExitStatus>> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() {
            *ended = self.process().ended()?;
        }
        Ok(*ended)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_lines(output: impl AsyncRead + Unpin, shared: Arc<Shared>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        shared.change(|state| state.hear(&line));
    }
    shared.change(State::close);
}

async fn read_log(errors: impl AsyncRead + Unpin, shared: Arc<Shared>, mut file: File) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // The copy is for people; without it, the run goes on.
        drop(file.write_all(format!("{line}\n").as_bytes()).await);
        shared.change(|state| state.note(&line));
    }
    drop(file.flush().await);
    shared.change(State::close);
}
