//! Transfers in, balances and entries out, and an audit at the end.
//!
//! - `cargo run -p example-ledger`: a broker in this process and a SQLite file.
//!   Three members work on 20 000 transfers; one leaves in the middle, and one
//!   comes back.
//! - `cargo run -p example-ledger -- --kafka 127.0.0.1:9092 --database postgres://…`:
//!   the real thing, in as many processes as you start. Ctrl-C drains.
//!
//! `--help` explains the rest. It ends with 0 only if the audit holds; with 1 if
//! it does not; with 2 if something that it needs is not there.

mod arguments;
mod audit;
mod counts;
mod embedded;
mod ledger;
mod member;
mod progress;
mod real;
mod signals;
mod tables;

use std::process::ExitCode;

use clap::Parser as _;

use self::{arguments::Arguments, audit::Audit};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(arguments.log.as_str())
        .with_writer(std::io::stderr)
        .init();
    let counts = counts::install();
    let outcome = match &arguments.kafka {
        None => embedded::run(&arguments, &counts).await,
        Some(kafka) => real::run(&arguments, kafka, &counts).await,
    };
    match outcome {
        Ok(Some(audit)) if audit.holds() => ExitCode::SUCCESS,
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(_)) => ExitCode::FAILURE,
        Err(error) => {
            progress::complain(&format!("error: {}", progress::one_line(&error)));
            ExitCode::from(2)
        }
    }
}

/// What came of a run: an audit, unless it was told to end before the end.
type Outcome = anyhow::Result<Option<Audit>>;
