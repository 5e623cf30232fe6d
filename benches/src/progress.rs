//! What a person at the terminal sees while it goes on.

use std::{fmt, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// One line, which changes; and what stays.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

// ===== impl Progress =====

impl Progress {
    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {prefix}: {msg}");
        let style = style.expect("it is a constant that a test has seen");
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    pub(crate) fn row(&self, name: &str) {
        self.bar.set_prefix(name.to_owned());
    }

    pub(crate) fn phase(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Says something that stays.
    #[expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]
    pub(crate) fn say(&self, what: impl fmt::Display) {
        self.bar.suspend(|| println!("{what}"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_line_can_be_drawn() {
        let progress = Progress::new();
        progress.row("once");
        progress.phase("run 1 of 5");
        progress.end();
    }
}
