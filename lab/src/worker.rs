//! A member of a group, as a process of its own.
//!
//! It is what a user would write: a stack on the facade, with probes of the test
//! kit between its layers. The lab tells it what to do by lines on its standard
//! input, and reads lines of [`Line`] from its standard output; what it logs
//! goes to its standard error, an object of JSON a line. When its input ends, it
//! ends: nobody is there any more.

mod arguments;
mod counters;
mod effect;
mod line;
mod log;
mod pipe;
mod sabotage;
mod stack;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use tidegate::prelude::*;
use tidegate_testkit::Probes;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use self::log::now;
pub use self::{
    arguments::{Arguments, LayerName, Protocol, Sabotage, Start},
    line::Line,
    log::Logged,
};
use self::{counters::Counters, pipe::Pipe, stack::Stacks};

/// The status of a process that was asked twice to end.
pub const IMPATIENT: i32 = 3;

/// What it logs when it listens to signals.
pub(crate) const UP: &str = "the worker is up";

/// Runs a worker until it is told to end.
///
/// # Panics
///
/// When the system has no threads for it.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a process can have threads");
    let result = runtime.block_on(run(arguments));
    // What an experiment holds, it holds.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(cause = format!("{error:#}"), "the worker ends with an error");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    log::install();
    let asked = Asked::listen().context("listening for signals")?;
    let counters = Counters::install();
    let probes = Probes::new();
    let database = Database::open(arguments.database_options()).await.context("opening")?;
    let source = KafkaSource::new(arguments.kafka_config())?.subscribe(arguments.topics());
    let pipe = Pipe::new(source.status(), counters);
    tokio::spawn(pipe.clone().serve(probes.clone()));
    let stacks = Stacks::new(arguments, database, probes);
    let serve = source.serve(move |assignment| stacks.stack(&assignment));
    let served = serve.with_graceful_shutdown(asked.comes()).await;
    pipe.say(&Line::Counters(pipe.counters())).await;
    served.context("serving")
}

/// `SIGTERM`, which is listened for from the start.
struct Asked {
    signals: Signal,
}

impl Asked {
    fn listen() -> Result<Self> {
        let signals = signal(SignalKind::terminate())?;
        tracing::info!("{}", UP);
        Ok(Self { signals })
    }

    /// Waits for the signal. A second one ends the process at once.
    async fn comes(mut self) {
        self.signals.recv().await;
        tracing::info!("asked to end");
        tokio::spawn(async move {
            self.signals.recv().await;
            tracing::info!("asked again to end: at once");
            std::process::exit(IMPATIENT);
        });
    }
}
