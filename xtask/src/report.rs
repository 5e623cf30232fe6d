//! What is said to the person at the terminal.

use std::fmt;

/// Says what is being done, beside what is asked for.
#[expect(clippy::print_stderr, reason = "a command line tool talks to its terminal")]
pub(crate) fn note(message: &impl fmt::Display) {
    eprintln!("{message}");
}

/// Prints what was asked for.
#[expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]
pub(crate) fn answer(message: &impl fmt::Display) {
    println!("{message}");
}
