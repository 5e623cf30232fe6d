//! A plain effect on each record.

use anyhow::Result;

use crate::{
    bench::{Bench, Side},
    job::Tally,
    measure::Bar,
    programs::Program,
    report::Line,
    topic::Topic,
};

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let records = bench.scaled(400_000, 10_000);
    let mut lines = Vec::new();
    // By hand, as many records take too long.
    for (partitions, few, bar) in [(1, 50, 20.0), (8, 10, 8.0)] {
        let topic = Topic::new(partitions, records);
        let one = Side::new(Program::Once, topic);
        let four = Side { lanes: 4, ..one.clone() };
        let by_hand = Side::new(Program::ByHand, Topic::new(partitions, records / few));
        let sides = [one, four, by_hand];
        let ([one, four, by_hand], tallies) = bench.rounds_of(&sides, Tally::steady_rate).await?;
        let line = |lanes, ours, tally: &Tally| {
            let (of, lanes) = (super::partitions(partitions), super::lanes(lanes));
            let name = format!("once, {of}, {lanes}");
            let theirs = ("by hand", by_hand.clone());
            let note = format!("{:.0} records in a transaction", tally.batch());
            Line::new(name, "records/s", ours, theirs, Bar::AtLeast(bar)).with_note(note)
        };
        lines.push(line(1, one, &tallies[0]));
        lines.push(line(4, four, &tallies[1]));
    }
    Ok(lines)
}
