//! Programs in other languages, built where those are there.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::programs::Program;

/// What was built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    franz: Option<PathBuf>,
    java: Option<PathBuf>,
}

const GO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/go");
const JAVA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/java");

// ===== impl Peers =====

impl Peers {
    /// Builds what can be built here, under `target`.
    pub(crate) async fn build(target: &Path) -> Result<Self> {
        let folder = std::path::absolute(target.join("peers"))?;
        std::fs::create_dir_all(&folder)?;
        let franz = folder.join("franz");
        let is_there = answers("go", "version").await;
        if is_there {
            let mut go = Command::new("go");
            go.args(["build", "-o"]).arg(&franz).arg(".").current_dir(GO);
            run(&mut go).await.context("building the peer in Go")?;
        }
        let franz = is_there.then_some(franz);
        let java = folder.join("java");
        let is_there = answers("java", "-version").await && answers("mvn", "-version").await;
        if is_there {
            let mut maven = Command::new("mvn");
            maven
                .args(["-q", "-B", "package", "dependency:copy-dependencies"])
                .arg(format!("-Doutput={}", java.display()))
                .arg(format!("-DoutputDirectory={}", java.display()))
                .current_dir(JAVA);
            run(&mut maven).await.context("building the peers in Java")?;
        }
        Ok(Self { franz, java: is_there.then_some(java) })
    }

    /// What could not be built.
    pub(crate) fn left_out(&self) -> Vec<&'static str> {
        let go = self.franz.is_none().then_some("franz-go is left out: there is no Go");
        let java = self.java.is_none().then_some("Java is left out: there is no Java with Maven");
        go.into_iter().chain(java).collect()
    }

    /// How a program is started; `None` for one that was not built.
    pub(crate) fn command(&self, program: Program) -> Option<Vec<String>> {
        if program.is_go() {
            return Some(vec![self.franz.as_ref()?.display().to_string()]);
        }
        let jars = format!("{}/*", self.java.as_ref()?.display());
        let words = ["java", "-Xmx1g", LOG_LEVEL, "-cp", &jars, "peers.Main"];
        Some(words.map(str::to_owned).to_vec())
    }
}

const LOG_LEVEL: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error";

async fn answers(program: &str, question: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(question).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

async fn run(command: &mut Command) -> Result<()> {
    let status = command.status().await?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}
