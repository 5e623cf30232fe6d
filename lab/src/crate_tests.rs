//! The tests of the crates that need a real Kafka or PostgreSQL.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use tidegate_oracle::Verdict;
use tokio::time::sleep;
use xtask::{
    feature_arguments,
    services::{Signal, Versions, is_interrupted},
};

use crate::{
    evidence::Evidence,
    member::PATIENCE,
    progress::Progress,
    services::Services,
    worker::{Protocol, now},
};

/// As it is asked for with `--only`.
pub(crate) const NAME: &str = "tests";

pub(crate) const ABOUT: &str = "The tests of the crates that need the real services.";

/// The test programs with such tests.
pub(crate) const PROGRAMS: &[&str] = &[
    "contract",
    "dead_letter",
    "drops",
    "end_to_end",
    "guard",
    "inbox",
    "interrupted",
    "metrics",
    "migration",
    "open",
    "proxy",
    "real",
    "retention",
    "sequencer",
    "tables",
    "txn",
];

/// Runs them with the addresses in `TIDEGATE_KAFKA` and `TIDEGATE_DATABASE`.
pub(crate) async fn run(services: &Services, directory: &Path, progress: &Progress) -> Evidence {
    let line = progress.line(NAME);
    line.phase("cargo test");
    let mut evidence = evidence(services.versions());
    evidence.origins = Some(services.origins());
    match cargo_test(services, directory).await {
        Ok(passed) => {
            evidence.verdict = Verdict::Pass;
            evidence.counts.insert("passed".to_owned(), passed);
        }
        Err(error) => {
            evidence.verdict = if is_interrupted() { Verdict::NotRun } else { Verdict::Fail };
            evidence.reasons.push(format!("{error:#}"));
        }
    }
    evidence.ended = now();
    evidence
}

/// What is known of them when there is nothing to run them on.
pub(crate) fn not_run(versions: &Versions, error: &anyhow::Error) -> Evidence {
    let mut evidence = evidence(versions);
    evidence.reasons.push(format!("{error:#}"));
    evidence.ended = evidence.began;
    evidence
}

fn evidence(versions: &Versions) -> Evidence {
    let mut evidence = Evidence::new(NAME, Protocol::Consumer, versions);
    evidence.about = ABOUT.to_owned();
    evidence
}

/// Returns how many tests passed.
async fn cargo_test(services: &Services, directory: &Path) -> Result<i64> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let log = directory.join("tests.log");
    let output = std::fs::File::create(&log)?;
    let mut command = Command::new(cargo);
    // Of the whole workspace, so that the features are those that are built.
    command.args(["test", "--workspace", "--locked"]).args(feature_arguments()?);
    command.args(PROGRAMS.iter().flat_map(|program| ["--test", program]));
    command
        .env("TIDEGATE_KAFKA", services.bootstrap())
        .env("TIDEGATE_DATABASE", services.database_url())
        .stdin(std::process::Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut process = services.run().spawn(NAME, &mut command, Signal::SIGTERM)?;
    let status = loop {
        if let Some(status) = process.ended()? {
            break status;
        }
        sleep(PATIENCE / 600).await;
    };
    let text = tokio::fs::read_to_string(&log).await?;
    ensure!(status.success(), "the tests ended with {status}, see {}", log.display());
    let passed = text.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let passed = passed.filter_map(|line| line.split_once(' ')?.0.parse::<i64>().ok());
    Ok(passed.sum())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::PROGRAMS;

    #[test]
    fn what_needs_a_service_is_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let crates = fs::read_dir(root.join("crates")).unwrap().map(|it| it.unwrap().path());
        for tests in crates.chain([root.join("lab")]).map(|it| it.join("tests")) {
            for file in fs::read_dir(tests).into_iter().flatten().map(|it| it.unwrap().path()) {
                let name = file.file_stem().unwrap().to_str().unwrap();
                let text = fs::read_to_string(&file).unwrap_or_default();
                let needs = ["TestDatabase", "TIDEGATE_KAFKA", "TIDEGATE_DATABASE"];
                if needs.iter().any(|it| text.contains(it)) {
                    assert!(PROGRAMS.contains(&name), "{} is not run", file.display());
                }
            }
        }
    }
}
