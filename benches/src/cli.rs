//! The command line.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use xtask::services::{Run, Sources, is_interrupted, wait_for_the_end};

use crate::{
    bench::Bench,
    peers::Peers,
    programs,
    progress::Progress,
    report::{self, Report},
    rows::{PEERS, ROWS, Row, commit_millis},
    services::Services,
};

/// Measures what Tidegate costs, against what a user would write without it, on
/// a real Kafka and a real PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print the names of the rows, and what they are about
    #[arg(long)]
    list: bool,
    /// Run this row only; may be given repeatedly
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A little of everything, to see that it works: the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Compare with consumers in Go and Java too, where those are there
    #[arg(long)]
    peers: bool,
    /// How often each program is run, in turn with the others
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Write what was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    sources: Sources,
    /// Where Cargo builds
    #[arg(long, hide = true, default_value = "target", env = "CARGO_TARGET_DIR")]
    target: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a program that is measured
    #[command(hide = true)]
    Program {
        /// What it is to do, as JSON
        job: String,
    },
}

const ROUNDS: usize = 5;

/// Runs the benchmark.
///
/// # Panics
///
/// When the system has no threads for it.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Program { job }) = &arguments.command {
        return code(programs::main(job));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a process can have threads");
    let result = runtime.block_on(run(arguments));
    runtime.shutdown_timeout(Duration::from_secs(5));
    if is_interrupted() {
        wait_for_the_end();
    }
    code(result)
}

#[expect(clippy::print_stderr, reason = "a command line tool talks to its terminal")]
fn code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let progress = Progress::new();
    if arguments.list {
        for row in ROWS {
            progress.say(format_args!("{:<16} {}", row.name, row.about));
        }
        return Ok(());
    }
    let rows = chosen(&arguments)?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { ROUNDS });
    std::fs::create_dir_all(&arguments.target)?;
    let owner = Run::begin(&arguments.target.join("services"), "bench")?;
    progress.phase("starting Kafka and PostgreSQL");
    let services = Services::start(owner, arguments.sources).await?;
    let mut bench =
        Bench::new(services, arguments.quick, rounds, progress.clone(), &arguments.target)?;
    if rows.iter().any(|row| row.name == PEERS) {
        progress.phase("building peers");
        bench.peers = Peers::build(&arguments.target).await?;
    }
    let commit_millis = commit_millis(&bench.services.database).await?;
    let versions = &bench.services.machine;
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for row in rows {
        progress.row(row.name);
        match (row.run)(&bench).await {
            Ok(measured) => {
                progress.say(report::rows(&measured).trim_end());
                lines.extend(measured);
            }
            Err(error) => {
                progress.say(format_args!("{}: {error:#}", row.name));
                failed.push(row.name);
            }
        }
        // After each row, so that what was measured is not lost.
        if let Some(path) = &arguments.json {
            let lines = &lines;
            let report = Report { versions, quick: bench.quick, rounds, commit_millis, lines };
            report::write(path, &report)?;
        }
    }
    progress.end();
    progress.say(format_args!("\n{}", report::table(&lines)));
    progress.say(format_args!("a commit takes {commit_millis:.2} ms; {versions}"));
    ensure!(failed.is_empty(), "{} went wrong", failed.join(", "));
    Ok(())
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Row>> {
    let Arguments { only, peers, .. } = arguments;
    if only.is_empty() {
        return Ok(ROWS.iter().filter(|row| *peers || row.name != PEERS).collect());
    }
    let mut names: Vec<_> = only.iter().map(String::as_str).collect();
    if *peers && !names.contains(&PEERS) {
        names.push(PEERS);
    }
    let find = |name: &str| {
        let row = ROWS.iter().find(|row| row.name == name);
        row.with_context(|| format!("there is no row `{name}`; `--list` prints them"))
    };
    names.into_iter().map(find).collect()
}
