//! A real Kafka and a real PostgreSQL, for as long as somebody needs them.
//!
//! What serves is found in this order: an address that was given, `docker
//! compose` when an engine answers, processes of this machine. The last take
//! Kafka from Maven, and PostgreSQL from the path or else from Maven too.
//!
//! A [`Run`] owns everything that is started for one purpose: its processes,
//! containers, data, logs and ports. All of it is ended and removed when the
//! last handle is dropped, so also when a test panics, and when the process is
//! told to end (Ctrl-C, `SIGTERM`, `SIGHUP`). What a run leaves behind because
//! it was killed outright, the next one under the same folder cleans up.
//!
//! ```no_run
//! use xtask::services::{Database, DatabaseOptions, Kafka, KafkaOptions, Run, Sources};
//!
//! # fn main() -> anyhow::Result<()> {
//! let sources = Sources::default();
//! let run = Run::begin("target/services".as_ref(), "demo")?;
//! let kafka = Kafka::start(&run, &sources, &KafkaOptions::default())?;
//! let database = Database::start(&run, &sources, &DatabaseOptions::default())?;
//! println!("{} {}", kafka.bootstrap(), database.url());
//! # Ok(())
//! # }
//! ```
//!
//! Everything here blocks the thread that calls it. An asynchronous program
//! calls it through `spawn_blocking`.
//!
//! What cannot be had on a machine is a [`Missing`], found in the error by
//! `downcast_ref`: one line that says what to install. Everything else that
//! keeps a service from starting comes with the end of its log.

mod compose;
mod identity;
mod kafka;
mod maven;
mod missing;
mod ports;
mod postgres;
mod probe;
mod process;
mod record;
mod run;
mod server;
mod signals;
mod user;
mod versions;
mod wait;

pub use nix::sys::signal::Signal;
use serde::Serialize;

pub use self::{
    kafka::{Kafka, KafkaOptions},
    missing::Missing,
    ports::Port,
    postgres::{Database, DatabaseOptions},
    process::Process,
    run::{Kept, Run},
    server::Server,
    signals::{Farewell, is_interrupted, wait_for_the_end},
    versions::Versions,
};

/// Where the services come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Sources {
    /// A Kafka that runs already, instead of one of our own.
    #[arg(long, value_name = "HOST:PORT", env = "TIDEGATE_KAFKA")]
    pub kafka: Option<String>,
    /// A PostgreSQL that runs already, instead of one of our own.
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Starts processes of this machine even where containers could be had.
    #[arg(long)]
    pub local: bool,
}

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Somebody else runs it, and gave its address.
    Given,
    /// A container of ours.
    Container,
    /// Processes of ours.
    Local,
}

/// Thirty-two random hexadecimal digits.
fn secret() -> std::io::Result<String> {
    use std::{fs::File, io::Read as _};

    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
