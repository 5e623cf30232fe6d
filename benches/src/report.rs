//! The table, and the same as JSON.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::{
    measure::{Bar, Series, Verdict},
    services::Machine,
};

/// One line of the table: two figures, and their ratio.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// What the figures are: `records/s`, `ns`.
    pub(crate) unit: &'static str,
    pub(crate) ours: Series,
    pub(crate) against: String,
    pub(crate) theirs: Series,
    pub(crate) ratio: Series,
    pub(crate) bar: Bar,
    pub(crate) verdict: Verdict,
    /// What has to be known beside it.
    pub(crate) note: String,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) versions: &'a Machine,
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// Of a commit that flushes, in milliseconds.
    pub(crate) commit_millis: f64,
    pub(crate) lines: &'a [Line],
}

// ===== impl Line =====

impl Line {
    /// Two figures, run by run.
    pub(crate) fn new(
        name: impl Into<String>,
        unit: &'static str,
        ours: Series,
        (against, theirs): (impl Into<String>, Series),
        bar: Bar,
    ) -> Self {
        let ratio = ours.ratio_to(&theirs);
        let verdict = bar.verdict(ratio.median());
        let (name, against) = (name.into(), against.into());
        let note = String::new();
        Self { name, unit, ours, against, theirs, ratio, bar, verdict, note }
    }

    /// A figure that has a bar by itself, beside another one.
    pub(crate) fn absolute(
        name: impl Into<String>,
        unit: &'static str,
        ours: Series,
        theirs: (impl Into<String>, Series),
        bar: Bar,
    ) -> Self {
        let verdict = bar.verdict(ours.median());
        Self { bar, verdict, ..Self::new(name, unit, ours, theirs, bar) }
    }

    /// One figure, and its own bar.
    pub(crate) fn of_one(
        name: impl Into<String>,
        unit: &'static str,
        ours: Series,
        bar: Bar,
    ) -> Self {
        let one = Series::new(vec![1.0; ours.runs.len()]);
        Self::new(name, unit, ours, ("", one), bar)
    }

    pub(crate) fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn cells(&self) -> [String; 7] {
        let alone = self.against.is_empty();
        let ratio = if alone { "".to_owned() } else { shown(&self.ratio) };
        let theirs = if alone {
            "".to_owned()
        } else {
            format!("{}: {}", self.against, shown(&self.theirs))
        };
        let bar = match self.bar {
            Bar::AtLeast(bar) => format!("≥ {}", figure(bar)),
            Bar::AtMost(bar) => format!("≤ {}", figure(bar)),
            Bar::Reported => String::new(),
        };
        let verdict = match self.verdict {
            Verdict::Met => "met",
            Verdict::Short => "short",
            Verdict::Reported => "",
        };
        [
            self.name.clone(),
            format!("{} {}", shown(&self.ours), self.unit),
            theirs,
            ratio,
            bar,
            verdict.to_owned(),
            self.note.clone(),
        ]
    }
}

const HEAD: [&str; 7] = ["row", "Tidegate", "against", "ratio", "bar", "", "note"];

/// The lines as a table of Markdown.
pub(crate) fn table(lines: &[Line]) -> String {
    let rule = HEAD.map(|_| "---");
    row(HEAD) + &row(rule) + &rows(lines)
}

/// The same without a head.
pub(crate) fn rows(lines: &[Line]) -> String {
    lines.iter().map(|line| row(line.cells().each_ref().map(String::as_str))).collect()
}

fn row(cells: [&str; 7]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Writes the report as JSON.
pub(crate) fn write(path: &Path, report: &Report<'_>) -> Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The median, and from where to where the runs went.
fn shown(series: &Series) -> String {
    let (low, high) = series.spread();
    let median = figure(series.median());
    if series.runs.len() < 2 || low == high {
        return median;
    }
    format!("{median} ({}–{})", figure(low), figure(high))
}

/// Three digits are as many as mean something.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, figure, table};
    use crate::measure::{Bar, Series};

    #[test]
    fn a_line_says_both_figures_their_ratio_and_whether_that_is_enough() {
        let (ours, theirs) = (Series::new(vec![2e4, 3e4, 4e4]), Series::new(vec![2e3; 3]));
        let line = Line::new("once", "records/s", ours, ("by hand", theirs), Bar::AtLeast(20.0));
        let expected = "| once | 30.0 k (20.0 k–40.0 k) records/s | by hand: 2000 \
            | 15.0 (10.0–20.0) | ≥ 20.0 | short |  |";
        assert_eq!(table(&[line]).lines().last(), Some(expected));
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = [1_234_567.0, 12_345.0, 123.4, 12.34, 1.234].map(figure);
        assert_eq!(shown, ["1.23 M", "12.3 k", "123", "12.3", "1.23"]);
    }
}
