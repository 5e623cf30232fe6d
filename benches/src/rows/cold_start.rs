//! How soon a new process has its first record, with many partitions.

use anyhow::Result;

use crate::{
    bench::{Bench, Side, Store},
    measure::{Bar, Series},
    meter::now,
    programs::Program,
    report::Line,
    topic::Topic,
};

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let partitions = bench.scaled(1_000, 50);
    let topic = Topic::new(partitions, bench.scaled(100_000, 10_000));
    let ours = Side { store: Store::Nothing, ..Side::new(Program::Read, topic) };
    let theirs = Side { program: Program::ByHandRead, ..ours.clone() };
    bench.topic(topic).await?;
    let mut millis = [Vec::new(), Vec::new()];
    for _ in 0..bench.rounds() {
        for (side, millis) in [&ours, &theirs].into_iter().zip(&mut millis) {
            let started = now();
            let tally = bench.run(side).await?;
            millis.push((tally.first - started) as f64 / 1e3);
        }
    }
    let [ours, theirs] = millis.map(Series::new);
    let name = format!("cold-start, {}", super::partitions(partitions));
    Ok(vec![Line::new(name, "ms", ours, ("raw", theirs), Bar::Reported)])
}
