//! Models of the code that uses atomics.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::workspace::Workspace;

/// Runs the tests called `loom_tests` of each crate that depends on loom, under
/// loom's primitives and in a target directory of their own.
pub(crate) fn run(sh: &Shell, workspace: &Workspace) -> Result<()> {
    let target = workspace.target().join("loom");
    let _flags = sh.push_env("RUSTFLAGS", "--cfg loom -D warnings");
    let _depth = sh.push_env("LOOM_MAX_PREEMPTIONS", "2");
    for package in workspace.packages() {
        if package.dependencies.iter().any(|dependency| dependency.name == "loom") {
            let name = &*package.name;
            cmd!(
                sh,
                "cargo test -p {name} --lib --release --locked --target-dir {target} loom_tests"
            )
            .run()?;
        }
    }
    Ok(())
}
