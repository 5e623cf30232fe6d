//! Workspace automation, run as `cargo xtask <task>`.
//!
//! One module per task. What tests need of the outside world is in
//! [`services`], for the tasks that run them.

mod bench;
mod deny;
mod down;
mod features;
mod integration;
mod lint;
mod loom;
mod report;
pub mod services;
mod test;
mod tidy;
mod up;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xshell::Shell;

pub use self::features::feature_arguments;
use self::workspace::Workspace;

/// Tidegate's automation.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Everything a change must pass that needs no service, in the order of cost
    Ci,
    /// Rules about files, format, lints, docs, dependency rules
    Lint,
    /// Every test that needs no service, and the examples
    Test,
    /// The fault lab: real services, worker processes, failures, and a judge
    Integration(integration::Arguments),
    /// What Tidegate costs, against what is written without it
    Bench(bench::Arguments),
    /// Every feature alone, and every pair
    Features,
    /// Models of the code that uses atomics
    Loom,
    /// Duplicate, banned and unlicensed dependencies
    Deny,
    /// Rules about files that no compiler checks
    Tidy,
    /// Start a real Kafka and PostgreSQL, and print their addresses
    Up(up::Arguments),
    /// End what `up` started
    Down,
}

/// Runs the task that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    let result = run(&Arguments::parse().task);
    if services::is_interrupted() {
        services::wait_for_the_end();
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(workspace::root());
    let workspace = Workspace::load()?;
    match task {
        Task::Ci => {
            lint::run(&sh, &workspace)?;
            test::run(&sh, &workspace)?;
            loom::run(&sh, &workspace)?;
            features::run(&sh, &workspace)
        }
        Task::Lint => lint::run(&sh, &workspace),
        Task::Test => test::run(&sh, &workspace),
        Task::Integration(arguments) => integration::run(&sh, &workspace, arguments),
        Task::Bench(arguments) => bench::run(&sh, &workspace, arguments),
        Task::Features => features::run(&sh, &workspace),
        Task::Loom => loom::run(&sh, &workspace),
        Task::Deny => deny::run(&sh),
        Task::Tidy => tidy::run(&workspace),
        Task::Up(arguments) => up::run(arguments, &workspace),
        Task::Down => down::run(&workspace),
    }
}
