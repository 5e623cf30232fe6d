//! Dependency rules, in `deny.toml`.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

/// Advisories are left out: they change by the day, and need a network.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    if cmd!(sh, "cargo deny --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        bail!("cargo-deny is not installed: run `cargo install cargo-deny --locked`");
    }
    // Who may use a crate is said also for crates that nobody uses at the moment.
    cmd!(
        sh,
        "cargo deny --all-features --locked check --allow unused-wrapper bans licenses sources"
    )
    .run()?;
    Ok(())
}
