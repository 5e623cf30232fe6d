//! The command line.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use xtask::services::{Sources, is_interrupted, wait_for_the_end};

use crate::{crate_tests, experiments, progress::Progress, run, worker::Protocol};

/// Runs a real Kafka, a real PostgreSQL and worker processes through failures,
/// and judges what is left.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask integration", bin_name = "cargo xtask integration")]
pub(crate) struct Arguments {
    /// Print the names of the experiments, and what they are about
    #[arg(long)]
    pub(crate) list: bool,
    /// Run this experiment only, or this step of one; may be given repeatedly
    #[arg(long, value_name = "NAME", value_parser = known)]
    pub(crate) only: Vec<String>,
    /// Run with this protocol only, and what is about one protocol with that
    #[arg(long, value_enum)]
    pub(crate) protocol: Option<Protocol>,
    /// Each experiment on one protocol, which the seed chooses
    #[arg(long)]
    pub(crate) quick: bool,
    /// What chance begins with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How often a process dies at each point of `crash-at-every-point`: 20
    /// times, or with `--quick` twice
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// How long `chaos` lasts, as `60s` or `30m`
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) chaos: Duration,
    #[command(flatten)]
    pub(crate) sources: Sources,
    /// Leave topics, groups, schemas and services behind
    #[arg(long)]
    pub(crate) keep: bool,
    /// Where the evidence goes, instead of a new folder under
    /// `target/integration`
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Where Cargo builds
    #[arg(long, hide = true, default_value = "target", env = "CARGO_TARGET_DIR")]
    pub(crate) target: PathBuf,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Everything that was asked for was run, and passed.
    Passed,
    /// Something was not as it should be.
    Failed,
    /// Nothing failed, and something could not be run.
    NotRun,
}

// `EX_USAGE` of sysexits.h: not to be taken for a verdict, as clap's 2 would be.
const USAGE: u8 = 64;

/// Runs the lab.
///
/// # Panics
///
/// When the system has no threads for it.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => {
            // Nobody is left to be told that it cannot be printed.
            let _ = said.print();
            return if said.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let progress = Progress::default();
    if arguments.list {
        let (name, about) = (crate_tests::NAME, crate_tests::ABOUT);
        progress.say(format_args!("{name:<48} {:<27} {about}", ""));
        for experiment in experiments::all() {
            let protocols: Vec<_> = experiment.protocols.iter().map(|it| it.as_str()).collect();
            let (name, about) = (experiment.name, experiment.about);
            progress.say(format_args!("{name:<48} {:<27} {about}", protocols.join(" ")));
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a process can have threads");
    let ended = runtime.block_on(run::run(arguments, progress.clone()));
    runtime.shutdown_timeout(Duration::from_secs(5));
    if is_interrupted() {
        wait_for_the_end();
    }
    match ended {
        Ok(Ended::Passed) => ExitCode::SUCCESS,
        Ok(Ended::Failed) => ExitCode::from(1),
        Ok(Ended::NotRun) => ExitCode::from(2),
        Err(error) => {
            progress.say(format_args!("error: {error:#}"));
            ExitCode::from(1)
        }
    }
}

/// The name of an experiment, or of a step of one.
fn known(name: &str) -> Result<String, String> {
    let known = experiments::all().any(|it| it.is_called(name)) || name == crate_tests::NAME;
    known.then(|| name.to_owned()).ok_or_else(|| "`--list` names the experiments".to_owned())
}

/// Reads `90`, `90s`, `30m` or `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((last, 's')) => (&text[..last], 1),
        Some((last, 'm')) => (&text[..last], 60),
        Some((last, 'h')) => (&text[..last], 3_600),
        _ => (text, 1),
    };
    let number: u32 = number.parse().map_err(|_| format!("`{text}` is not like 60s or 30m"))?;
    Ok(Duration::from_secs(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Arguments, Duration};

    #[test]
    fn durations_are_read() {
        Arguments::command().debug_assert();
        for (text, seconds) in [("90", 90), ("60s", 60), ("30m", 1_800), ("2h", 7_200)] {
            let arguments = Arguments::parse_from(["lab", "--chaos", text]);
            assert_eq!(arguments.chaos, Duration::from_secs(seconds));
        }
        for text in ["", "s", "-1s", "1d", "1.5m"] {
            assert!(Arguments::try_parse_from(["lab", "--chaos", text]).is_err(), "{text}");
        }
    }
}
