//! The real Kafka and the real PostgreSQL of a run.

use std::{fmt, thread};

use anyhow::Result;
use serde::Serialize;
use tokio::task::spawn_blocking;
use xtask::services::{Database, DatabaseOptions, Kafka, KafkaOptions, Run, Sources, Versions};

/// What the programs work with.
pub(crate) struct Services {
    // Ended with this.
    _run: Run,
    _kafka: Kafka,
    _database: Database,
    pub(crate) bootstrap: String,
    pub(crate) database: String,
    pub(crate) machine: Machine,
}

/// What runs, and on what.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    versions: Versions,
    processors: usize,
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
            let librdkafka = rdkafka::util::get_rdkafka_version().1;
            let versions = Versions::of(&kafka, &database, librdkafka);
            let processors = thread::available_parallelism().map_or(0, Into::into);
            Ok((run, kafka, database, Machine { versions, processors }))
        });
        let (run, kafka, database, machine) = started.await??;
        Ok(Self {
            bootstrap: kafka.bootstrap().to_owned(),
            database: database.url().to_owned(),
            _run: run,
            _kafka: kafka,
            _database: database,
            machine,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { versions, processors } = self;
        let Versions { kafka, librdkafka, postgresql, rust, commit } = versions;
        write!(f, "{processors} processors, Kafka {kafka}, librdkafka {librdkafka}, ")?;
        write!(f, "PostgreSQL {postgresql}, {rust}, commit {commit}")
    }
}
