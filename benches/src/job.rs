//! What a measured program is told, and what it answers.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::programs::Program;

/// What a program is told, as JSON on its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) program: Program,
    pub(crate) bootstrap: String,
    pub(crate) database: String,
    pub(crate) topic: String,
    pub(crate) partitions: i32,
    pub(crate) group: String,
    /// After so many records it ends. It ends too when its input does.
    pub(crate) records: u64,
    /// The most records in a transaction.
    pub(crate) batch: usize,
    pub(crate) lanes: usize,
    /// How long an effect takes beside its statements.
    pub(crate) work: Duration,
    /// Properties of the Kafka client.
    pub(crate) properties: Vec<(String, String)>,
    /// Where each effect is written down: when, partition, offset.
    pub(crate) log: Option<PathBuf>,
}

/// What a program answers, as a line of JSON. Times are in microseconds since
/// the Unix epoch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) records: u64,
    /// The sum of the revisions of all records.
    pub(crate) revisions: i64,
    /// When the first, a tenth, nine tenths and all of the records were done.
    pub(crate) first: i64,
    pub(crate) tenth: i64,
    pub(crate) nine_tenths: i64,
    pub(crate) last: i64,
    /// Transactions, if the program counts them.
    pub(crate) batches: u64,
    /// Time of the processors, start included.
    pub(crate) cpu_micros: i64,
    /// The most that was resident.
    pub(crate) resident_bytes: u64,
    /// Allocations, if the program counts them.
    pub(crate) allocations: u64,
}

/// A program that runs. Dropped, it is killed.
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Longer than any run.
const PATIENCE: Duration = Duration::from_secs(600);

// ===== impl Job =====

impl Job {
    /// Runs the program to its end.
    pub(crate) async fn run(&self, command: &[String]) -> Result<Tally> {
        let tally = self.start(command)?.tally().await?;
        let (expected, found) = (self.records, tally.records);
        ensure!(found == expected, "{} did {found} of {expected} records", self.program.name());
        Ok(tally)
    }

    /// Starts the program, by this command.
    pub(crate) fn start(&self, command: &[String]) -> Result<Running> {
        let (program, arguments) = command.split_first().context("a command has a program")?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(serde_json::to_string(self)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a program")?;
        let output = child.stdout.take().context("it has an output")?;
        let input = child.stdin.take();
        let lines = BufReader::new(output).lines();
        Ok(Running { name: self.program.name(), child, input, lines })
    }
}

// ===== impl Running =====

impl Running {
    /// Waits until it has ended by itself, and for its answer.
    pub(crate) async fn tally(&mut self) -> Result<Tally> {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.with_context(|| format!("{} does not end", self.name))??;
        let status = self.child.wait().await?;
        match line {
            Some(line) if status.success() => Ok(serde_json::from_str(&line)?),
            _ => bail!("{} ended with {status}", self.name),
        }
    }

    /// Tells it to end, and waits for its answer.
    pub(crate) async fn end(mut self) -> Result<Tally> {
        drop(self.input.take());
        self.tally().await
    }
}

// ===== impl Tally =====

impl Tally {
    /// Records a second, from the first to the last.
    pub(crate) fn rate(&self) -> f64 {
        per_second(self.records as f64, self.last - self.first)
    }

    /// Records a second between a tenth and nine tenths of them.
    pub(crate) fn steady_rate(&self) -> f64 {
        per_second(self.records as f64 * 0.8, self.nine_tenths - self.tenth)
    }

    /// Records in a transaction.
    pub(crate) fn batch(&self) -> f64 {
        self.records as f64 / self.batches.max(1) as f64
    }
}

fn per_second(count: f64, micros: i64) -> f64 {
    count * 1e6 / micros.max(1) as f64
}
