//! What a user would pick instead, in other languages.

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
    for what in bench.peers.left_out() {
        bench.progress.say(what);
    }
    let read = Topic::new(8, bench.scaled(4_000_000, 100_000));
    let read = Side { store: Store::Nothing, ..Side::new(Program::Read, read) };
    let readers = [Program::FranzRead, Program::JavaRead];
    let mut lines = compare(bench, "read", &read, &readers, Tally::rate, 0.5).await?;
    let once = Topic::new(8, bench.scaled(40_000, 2_000));
    let once = Side::new(Program::Once, once);
    let writers = [Program::ParallelConsumer, Program::Franz, Program::Spring];
    lines.extend(compare(bench, "once", &once, &writers, Tally::steady_rate, 4.0).await?);
    let batch = Topic::new(8, bench.scaled(400_000, 20_000));
    let batch = Side::new(Program::OnceBalance, batch);
    let writers = [Program::FranzMerge, Program::SpringMerge];
    lines.extend(compare(bench, "once-batch", &batch, &writers, Tally::steady_rate, 0.5).await?);
    Ok(lines)
}

/// Runs a stack and peers in turn.
async fn compare(
    bench: &Bench,
    name: &str,
    ours: &Side,
    peers: &[Program],
    of: impl Fn(&Tally) -> f64,
    bar: f64,
) -> Result<Vec<Line>> {
    let there = |program: &&Program| bench.peers.command(**program).is_some();
    let there: Vec<_> = peers.iter().filter(there).copied().collect();
    let mut sides = vec![ours.clone()];
    sides.extend(there.iter().map(|program| Side { program: *program, ..ours.clone() }));
    let measured = bench.in_turn(&sides, of).await?;
    let mut measured = measured.into_iter();
    let Some((ours, _)) = measured.next() else { return Ok(Vec::new()) };
    let lines = there.iter().zip(measured).map(|(program, (theirs, tally))| {
        let theirs = (program.name(), theirs);
        let name = format!("peers, {name}");
        let line = Line::new(name, "records/s", ours.clone(), theirs, Bar::AtLeast(bar));
        let cpu = tally.cpu_micros as f64 / tally.records as f64;
        line.with_note(format!("{cpu:.1} µs of its processor time a record"))
    });
    Ok(lines.collect())
}
