//! What is seen while it works.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tidegate::{core::TopicPartition, kafka::Status};
use tokio::time::Instant;

/// A bar for all records, and a line for each member.
pub(crate) struct Progress {
    bars: MultiProgress,
    all: ProgressBar,
    members: BTreeMap<String, ProgressBar>,
    frontiers: BTreeMap<TopicPartition, i64>,
    moved: Instant,
}

impl Progress {
    /// `records` is how many there are, if that is known.
    pub(crate) fn new(records: Option<u64>) -> Self {
        let bars = MultiProgress::new();
        let all = bars.add(records.map_or_else(ProgressBar::no_length, ProgressBar::new));
        let style =
            ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} {per_sec} {msg}");
        all.set_style(style.expect("the template is right"));
        let frontiers = BTreeMap::new();
        Self { bars, all, members: BTreeMap::new(), frontiers, moved: Instant::now() }
    }

    /// Shows how a member stands.
    pub(crate) fn show(&mut self, member: &str, status: &Status) {
        let partitions = status.partitions();
        for partition in &partitions {
            let Some(frontier) = partition.frontier else { continue };
            let known = self.frontiers.entry(partition.partition.clone()).or_default();
            if frontier > *known {
                *known = frontier;
                self.moved = Instant::now();
            }
        }
        self.all.set_position(self.done());
        let bar = self.members.entry(member.to_owned()).or_insert_with(|| {
            let bar = self.bars.add(ProgressBar::no_length());
            let style = ProgressStyle::with_template("  {prefix:<10} {msg}");
            bar.set_style(style.expect("the template is right"));
            bar.set_prefix(member.to_owned());
            bar
        });
        let shown = partitions.iter().map(|it| format!("{}:{}", it.partition.partition, it.state));
        bar.set_message(shown.collect::<Vec<_>>().join(" "));
    }

    /// A member is gone.
    pub(crate) fn gone(&mut self, member: &str) {
        if let Some(bar) = self.members.get(member) {
            bar.finish_with_message("gone");
        }
    }

    /// How many records are finished, as members have seen it.
    pub(crate) fn done(&self) -> u64 {
        let sum: i64 = self.frontiers.values().sum();
        u64::try_from(sum).unwrap_or(0)
    }

    /// For how long nothing has moved.
    pub(crate) fn still(&self) -> Duration {
        self.moved.elapsed()
    }

    pub(crate) fn finish(self) {
        self.members.values().for_each(ProgressBar::finish_and_clear);
        self.all.finish();
    }
}

/// An error and its causes, without those that are printed already.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.ends_with(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

#[expect(clippy::print_stdout, reason = "an example talks to its terminal")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "an example talks to its terminal")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}
