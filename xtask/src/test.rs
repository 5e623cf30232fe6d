//! Every test that needs no service, and the examples.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{features::feature_arguments, workspace::Workspace};

pub(crate) fn run(sh: &Shell, workspace: &Workspace) -> Result<()> {
    let features = &feature_arguments()?;
    cmd!(sh, "cargo test --workspace {features...} --locked").run()?;

    let examples = workspace.packages_in("examples");
    if examples.is_empty() {
        return Ok(());
    }
    // All targets, so that the features are those of the tests: the examples
    // alone would have Cargo build their dependencies a second time.
    cmd!(sh, "cargo build --workspace --all-targets {features...} --locked").run()?;
    for package in examples {
        for target in package.targets.iter().filter(|target| target.is_bin()) {
            let program = workspace.target().join("debug").join(&target.name);
            cmd!(sh, "{program}").run()?;
        }
    }
    Ok(())
}
