//! Rules about files, format, lints, docs and dependencies; the cheapest first.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{deny, features::feature_arguments, tidy, workspace::Workspace};

pub(crate) fn run(sh: &Shell, workspace: &Workspace) -> Result<()> {
    tidy::run(workspace)?;
    cmd!(sh, "cargo fmt --all --check").run()?;
    deny::run(sh)?;
    let features = &feature_arguments()?;
    cmd!(sh, "cargo clippy --workspace --all-targets {features...} --locked -- -D warnings")
        .run()?;
    let _flags = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(sh, "cargo doc --workspace {features...} --no-deps --locked").run()?;
    Ok(())
}
