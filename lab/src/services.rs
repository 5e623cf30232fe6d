//! The real Kafka and the real PostgreSQL of a run.

use anyhow::Result;
use serde::Serialize;
use tokio::task::spawn_blocking;
use xtask::services::{Database, DatabaseOptions, Kafka, KafkaOptions, Run, Sources};

/// What the experiments of a run work with.
pub(crate) struct Services {
    run: Run,
    // Ended with this.
    _kafka: Kafka,
    _database: Database,
    bootstrap: String,
    database_url: String,
    versions: Versions,
}

/// What runs, and where it comes from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) kafka: String,
    pub(crate) librdkafka: String,
    pub(crate) postgresql: String,
    pub(crate) rust: String,
    pub(crate) commit: String,
}

// ===== impl Services =====

impl Services {
    /// Finds or starts both.
    pub(crate) async fn start(run: Run, sources: Sources) -> Result<Self> {
        let started = spawn_blocking({
            let run = run.clone();
            move || -> Result<_> {
                let kafka = Kafka::start(&run, &sources, &KafkaOptions::default())?;
                Ok((kafka, Database::start(&run, &sources, &DatabaseOptions::default())?))
            }
        });
        let (kafka, database) = started.await??;
        let versions = Versions {
            kafka: kafka.version().unwrap_or("unknown").to_owned(),
            librdkafka: rdkafka::util::get_rdkafka_version().1,
            postgresql: database.version().to_owned(),
            rust: said_by("rustc", &["--version"]).await,
            commit: said_by("git", &["describe", "--always", "--dirty", "--abbrev=12"]).await,
        };
        Ok(Self {
            run,
            bootstrap: kafka.bootstrap().to_owned(),
            database_url: database.url().to_owned(),
            _kafka: kafka,
            _database: database,
            versions,
        })
    }

    /// What owns the processes.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Where brokers are found without a proxy.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The database, without a proxy.
    pub(crate) fn database_url(&self) -> &str {
        &self.database_url
    }

    /// Leaves the services running.
    pub(crate) fn keep(&self) -> Result<()> {
        let exports =
            [("TIDEGATE_KAFKA", &self.bootstrap), ("TIDEGATE_DATABASE", &self.database_url)];
        let exports = exports.map(|(name, value)| (name.to_owned(), value.clone()));
        self.run.keep(exports.into())
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }
}

async fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new(program).args(arguments).output().await;
    let said = output.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}
