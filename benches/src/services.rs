//! The real Kafka and the real PostgreSQL of a run.

use anyhow::Result;
use serde::Serialize;
use tokio::task::spawn_blocking;
use xtask::services::{Database, DatabaseOptions, Kafka, KafkaOptions, Run, Sources};

/// What the programs work with.
pub(crate) struct Services {
    // Ended with this.
    _run: Run,
    _kafka: Kafka,
    _database: Database,
    pub(crate) bootstrap: String,
    pub(crate) database: String,
    pub(crate) versions: Versions,
}

/// What runs, and on what.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) kafka: String,
    pub(crate) librdkafka: String,
    pub(crate) postgresql: String,
    pub(crate) rust: String,
    pub(crate) commit: String,
    pub(crate) processors: usize,
}

// ===== impl Services =====

impl Services {
    /// Finds or starts both. A PostgreSQL of ours keeps its data in memory, and
    /// takes 1 ms for a commit.
    pub(crate) async fn start(run: Run, sources: Sources) -> Result<Self> {
        let started = spawn_blocking(move || -> Result<_> {
            let kafka = Kafka::start(&run, &sources, &KafkaOptions::default())?;
            let in_memory = sources.database.is_none();
            let options = DatabaseOptions { in_memory, ..DatabaseOptions::default() };
            let database = Database::start(&run, &sources, &options)?;
            Ok((run, kafka, database))
        });
        let (run, kafka, database) = started.await??;
        let versions = Versions {
            kafka: kafka.version().unwrap_or("unknown").to_owned(),
            librdkafka: rdkafka::util::get_rdkafka_version().1,
            postgresql: database.version().to_owned(),
            rust: said_by("rustc", &["--version"]).await,
            commit: said_by("git", &["describe", "--always", "--dirty", "--abbrev=12"]).await,
            processors: std::thread::available_parallelism().map_or(0, Into::into),
        };
        Ok(Self {
            bootstrap: kafka.bootstrap().to_owned(),
            database: database.url().to_owned(),
            _run: run,
            _kafka: kafka,
            _database: database,
            versions,
        })
    }
}

async fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new(program).args(arguments).output().await;
    let said = output.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kafka, librdkafka, postgresql, rust, commit, processors } = self;
        write!(f, "{processors} processors, Kafka {kafka}, librdkafka {librdkafka}, ")?;
        write!(f, "PostgreSQL {postgresql}, {rust}, commit {commit}")
    }
}
