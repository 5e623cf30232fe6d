//! The fault lab, with the tests that need the same services.
//!
//! The lab is a program of its own, so that automation needs none of what it is
//! made of. Here it is built, and takes the place of this process.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::{
    features::feature_arguments,
    workspace::{Workspace, root},
};

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What the lab is told; `--help` prints it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn run(sh: &Shell, workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    // All targets, so that the features are those of the tests: what those have
    // built is not built again.
    let features = feature_arguments()?;
    cmd!(sh, "cargo build --workspace --all-targets {features...} --locked").run()?;
    let lab = workspace.target().join("debug").join("tidegate-lab");
    let mut command = Command::new(&lab);
    command
        .current_dir(root())
        .args(&arguments.options)
        .env("CARGO_TARGET_DIR", workspace.target());
    Err(command.exec()).with_context(|| format!("starting {}", lab.display()))
}
