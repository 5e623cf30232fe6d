//! Containers through `docker compose`, where an engine answers.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::{Signal, ports::Port, run::Run, server::tail};

/// Whether there are an engine that answers and the plugin that we use.
pub(super) fn answers() -> bool {
    let succeeds = |arguments: &[&str]| {
        let mut docker = Command::new("docker");
        docker.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        docker.status().is_ok_and(|status| status.success())
    };
    succeeds(&["version", "--format", "{{.Server.Version}}"]) && succeeds(&["compose", "version"])
}

/// Starts one service of `docker-compose.yaml`, waits until it is healthy, and
/// says on which port of 127.0.0.1 it listens.
///
/// `variable` tells the file the port, `variables` the rest.
pub(super) fn up(
    run: &Run,
    service: &str,
    variable: &str,
    variables: &[(&str, &str)],
) -> Result<u16> {
    let folder = run.directory().file_name().context("the run's folder has a name")?;
    // The engine takes lower case alone.
    let project = format!("tidegate-{}", folder.display()).to_lowercase();
    run.add_project(&project);
    // The engine binds it anew; there is no way to hand over a port that is held.
    let port = Port::reserve()?.number();
    let mut command = compose(&project);
    command
        .args(["up", "--detach", "--wait", service])
        .env(variable, port.to_string())
        .envs(variables.iter().copied());
    let name = run.name("compose");
    let status = run.spawn_logged(&name, &mut command, Signal::SIGTERM)?.wait()?;
    if !status.success() {
        bail!("docker compose could not start {service}\n{}", tail(&run.log(&name)));
    }
    Ok(port)
}

/// Ends the containers of a project and removes their data.
pub(super) fn down(project: &str) -> Result<()> {
    let mut command = compose(project);
    command.args(["down", "--volumes", "--timeout", "2"]);
    let output = command.stdin(Stdio::null()).output().context("starting docker")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("docker compose could not end {project}: {}", error.trim());
    }
    Ok(())
}

fn compose(project: &str) -> Command {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker-compose.yaml");
    let mut command = Command::new("docker");
    command.args(["compose", "--project-name", project, "--file"]).arg(file);
    command
}
