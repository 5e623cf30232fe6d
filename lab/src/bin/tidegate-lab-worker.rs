//! A member of a group, as a process: see `tidegate_lab::worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_lab::worker::main()
}
