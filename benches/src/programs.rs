//! What is measured: each program is a process of its own.
//!
//! Those called `by_hand` are what a user would write without Tidegate.

mod by_hand;
mod by_hand_bulk;
mod by_hand_merge;
mod by_hand_read;
mod by_hand_sqlite;
mod metered;
mod once;
mod read;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::{job::Job, meter::Meter};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// A stack, with an effect on each record.
    Once,
    /// A stack, with an effect on whole batches.
    OnceBatch,
    /// A stack, with balances in place of entries, a batch at once.
    OnceBalance,
    /// A stack without a database.
    Read,
    /// A transaction for each record.
    ByHand,
    /// The same on SQLite.
    ByHandSqlite,
    /// A transaction for all that is there.
    ByHandBulk,
    /// The same with balances, and tables of its own.
    ByHandMerge,
    /// As fast as one loop reads and decodes.
    ByHandRead,
    /// franz-go, a plain loop.
    FranzRead,
    /// franz-go, a transaction for each record, and for each fetch.
    Franz,
    /// The same for each fetch.
    FranzMerge,
    /// Java's consumer, a plain loop.
    JavaRead,
    /// Parallel Consumer, a transaction for each record.
    ParallelConsumer,
    /// Spring Kafka, a transaction for each record.
    Spring,
    /// The same for each poll.
    SpringMerge,
}

// ===== impl Program =====

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Once => "tidegate",
            Self::OnceBatch | Self::OnceBalance => "tidegate, batch",
            Self::Read => "tidegate, read",
            Self::ByHand | Self::ByHandSqlite => "by hand",
            Self::ByHandBulk | Self::ByHandMerge => "by hand, bulk",
            Self::ByHandRead => "by hand, read",
            Self::FranzRead | Self::Franz | Self::FranzMerge => "franz-go",
            Self::JavaRead => "Java's consumer",
            Self::ParallelConsumer => "Parallel Consumer",
            Self::Spring | Self::SpringMerge => "Spring Kafka",
        }
    }

    /// Whether it does without Tidegate.
    pub(crate) fn is_by_hand(self) -> bool {
        !matches!(self, Self::Once | Self::OnceBatch | Self::OnceBalance | Self::Read)
    }

    /// Whether it is written in Go.
    pub(crate) fn is_go(self) -> bool {
        matches!(self, Self::FranzRead | Self::Franz | Self::FranzMerge)
    }

    /// Whether it is written in Java.
    pub(crate) fn is_java(self) -> bool {
        let java = [Self::JavaRead, Self::ParallelConsumer, Self::Spring, Self::SpringMerge];
        java.contains(&self)
    }

    /// Whether its effects are balances, not entries.
    pub(crate) fn keeps_balances(self) -> bool {
        let writes = [Self::OnceBalance, Self::ByHandMerge];
        writes.contains(&self) || self.is_go() || self.is_java()
    }

    async fn run(self, job: &Job, meter: &Meter) -> Result<()> {
        match self {
            Self::Once => once::run(job, meter, once::each(job)).await,
            Self::OnceBatch => once::run(job, meter, once::whole(job)).await,
            Self::OnceBalance => once::run(job, meter, once::balances()).await,
            Self::Read => read::run(job, meter).await,
            Self::ByHand => by_hand::run(job, meter).await,
            Self::ByHandSqlite => by_hand_sqlite::run(job, meter).await,
            Self::ByHandBulk => by_hand_bulk::run(job, meter).await,
            Self::ByHandMerge => by_hand_merge::run(job, meter).await,
            Self::ByHandRead => by_hand_read::run(job, meter).await,
            _ => bail!("it is a program of its own"),
        }
    }
}

/// Runs the program of a job, and prints what it did.
#[expect(clippy::print_stdout, reason = "it answers there")]
pub(crate) fn main(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let tally = runtime.block_on(async {
        let meter = Meter::new(&job)?;
        job.program.run(&job, &meter).await?;
        meter.tally()
    });
    // The input may still be read from.
    runtime.shutdown_background();
    println!("{}", serde_json::to_string(&tally?)?);
    Ok(())
}
