//! The benchmark.
//!
//! It is a program of its own, so that automation needs none of what it is made
//! of. Here it is built, and takes the place of this process.

use std::ffi::OsString;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{features::feature_arguments, workspace::Workspace};

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What the benchmark is told; `--help` prints it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn run(sh: &Shell, workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let folder = if arguments.options.iter().any(|option| option == "--quick") {
        // Its figures mean nothing, so it is what the tests have built already.
        let features = feature_arguments()?;
        cmd!(sh, "cargo build --workspace --all-targets {features...} --locked").run()?;
        "debug"
    } else {
        cmd!(sh, "cargo build --release --package tidegate-bench --locked").run()?;
        "release"
    };
    workspace.run_in_place(&format!("{folder}/tidegate-bench"), &arguments.options)
}
