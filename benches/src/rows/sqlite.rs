//! A plain effect on each record, on SQLite.

use anyhow::Result;

use crate::{
    bench::{Bench, Side, Store},
    job::Tally,
    measure::Bar,
    programs::Program,
    report::Line,
    topic::Topic,
};

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let topic = Topic::new(1, bench.scaled(40_000, 2_000));
    let ours = Side { store: Store::Sqlite, ..Side::new(Program::Once, topic) };
    let by_hand = Side { program: Program::ByHandSqlite, ..ours.clone() };
    let sides = [ours, by_hand];
    let ([ours, theirs], tallies) = bench.rounds_of(&sides, Tally::steady_rate).await?;
    let note = format!("{:.0} records in a transaction", tallies[0].batch());
    let line = Line::new("sqlite", "records/s", ours, ("by hand", theirs), Bar::AtLeast(5.0));
    Ok(vec![line.with_note(note)])
}
