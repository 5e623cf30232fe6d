//! The fault lab, run as `cargo xtask integration`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_lab::main()
}
