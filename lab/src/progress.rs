//! What a person at the terminal sees.

use std::{
    fmt,
    io::{self, Write as _},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A line for each experiment that runs, and a protocol of those that have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    lines: MultiProgress,
}

/// The line of one experiment.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
}

// ===== impl Progress =====

impl Progress {
    pub(crate) fn line(&self, name: impl fmt::Display) -> Line {
        let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {prefix}: {msg}");
        let bar = ProgressBar::new_spinner()
            .with_style(style.expect("it is a constant that a test has seen"))
            .with_prefix(name.to_string());
        let bar = self.lines.add(bar);
        bar.enable_steady_tick(Duration::from_millis(250));
        Line { bar }
    }

    /// Says something that stays.
    pub(crate) fn say(&self, what: impl fmt::Display) {
        // Whoever reads it may have had enough.
        self.lines.suspend(|| drop(writeln!(io::stdout().lock(), "{what}")));
    }
}

// ===== impl Line =====

impl Line {
    pub(crate) fn phase(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_line_can_be_drawn() {
        Progress::default().line("in-flight-handover, eager").phase("a batch is held");
    }
}
