//! Workspace automation, run as `cargo xtask <task>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
