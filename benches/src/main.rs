//! `cargo xtask bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_bench::main()
}
