use std::process::Command;

use serde::Serialize;

use super::{Database, Kafka};

const UNKNOWN: &str = "unknown";

/// What runs, and what it was built from: for what is written down of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Versions {
    /// Of Apache Kafka.
    pub kafka: String,
    /// Of the client.
    pub librdkafka: String,
    /// Of PostgreSQL.
    pub postgresql: String,
    /// What the compiler says of itself.
    pub rust: String,
    /// Of this repository, `-dirty` if it is changed.
    pub commit: String,
}

impl Versions {
    /// Asks the services, the compiler and Git. What does not answer is
    /// `unknown`.
    #[must_use]
    pub fn of(kafka: &Kafka, database: &Database, librdkafka: String) -> Self {
        Self {
            kafka: kafka.version().unwrap_or(UNKNOWN).to_owned(),
            postgresql: database.version().to_owned(),
            ..Self::of_no_service(librdkafka)
        }
    }

    /// The same, where there are no services.
    #[must_use]
    pub fn of_no_service(librdkafka: String) -> Self {
        Self {
            kafka: UNKNOWN.to_owned(),
            librdkafka,
            postgresql: UNKNOWN.to_owned(),
            rust: said_by("rustc", &["--version"]),
            commit: said_by("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        }
    }
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let said = output.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}
