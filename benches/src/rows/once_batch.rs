//! An effect on whole batches.

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
    let records = bench.scaled(400_000, 20_000);
    let mut lines = Vec::new();
    // A batch of eight partitions at once does not get to a thousand records in the
    // time that it may take.
    for (partitions, lanes, batch) in
        [(1, 1, 100), (1, 1, 1_000), (1, 2, 1_000), (8, 1, 400), (8, 1, 1_000)]
    {
        let topic = Topic::new(partitions, if batch < 400 { records / 4 } else { records });
        let ours = Side { batch, lanes, ..Side::new(Program::OnceBatch, topic) };
        let by_hand = Side { program: Program::ByHandBulk, ..ours.clone() };
        let sides = [ours, by_hand];
        let ([ours, theirs], tallies) = bench.rounds_of(&sides, Tally::steady_rate).await?;
        let (of, lanes) = (super::partitions(partitions), super::lanes(lanes));
        let name = format!("once-batch, {of}, {lanes}, up to {batch}");
        let [our_batch, their_batch] = tallies.map(|tally| tally.batch());
        let note = format!("{our_batch:.0} and {their_batch:.0} records in a transaction");
        let theirs = ("by hand", theirs);
        let line = Line::new(name, "records/s", ours, theirs, Bar::AtLeast(0.8));
        lines.push(line.with_note(note));
    }
    let ours = Side::new(Program::OnceBalance, Topic::new(8, records));
    let by_hand = Side { program: Program::ByHandMerge, ..ours.clone() };
    let sides = [ours, by_hand];
    let ([ours, theirs], tallies) = bench.rounds_of(&sides, Tally::steady_rate).await?;
    let [our_batch, their_batch] = tallies.map(|tally| tally.batch());
    let note = format!("{our_batch:.0} and {their_batch:.0} records in a transaction");
    let theirs = ("by hand, own tables", theirs);
    let line = Line::new("once-batch, balances", "records/s", ours, theirs, Bar::AtLeast(0.5));
    lines.push(line.with_note(note));
    Ok(lines)
}
