//! The fault lab, with the tests that need the same services.
//!
//! The lab is a program of its own, so that automation needs none of what it is
//! made of. Here it is built, and takes the place of this process.

use std::ffi::OsString;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{features::feature_arguments, workspace::Workspace};

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
    workspace.run_in_place("debug/tidegate-lab", &arguments.options)
}
