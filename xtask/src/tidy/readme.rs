//! The README shows the program that the tests run.

use std::fs;

use anyhow::{Context as _, Result};

use super::Finding;
use crate::workspace::root;

const README: &str = "README.md";
const PROGRAM: &str = "examples/quickstart/src/main.rs";

pub(super) fn check() -> Result<Option<Finding>> {
    let read =
        |file| fs::read_to_string(root().join(file)).with_context(|| format!("reading {file}"));
    let same = shows(&read(README)?, &read(PROGRAM)?);
    Ok((!same).then(|| format!("{README} does not show {PROGRAM} as it is")))
}

/// Whether a README has that program as a block, without the lines about the
/// file that come before its first item.
fn shows(readme: &str, program: &str) -> bool {
    let about = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
    let program: String = program.split_inclusive('\n').skip_while(about).collect();
    readme.contains(&format!("\n```rust\n{program}```\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_has_to_be_the_whole_program() {
        let readme = "# Name\n\n```rust\nfn main() {}\n```\n";
        assert!(shows(readme, "//! About it.\n#![expect(lint)]\nfn main() {}\n"));
        assert!(!shows(readme, "fn main() {}\n\nfn more() {}\n"));
        assert!(!shows(readme, "fn main()\n"));
    }
}
