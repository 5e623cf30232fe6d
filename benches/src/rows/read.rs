//! Reading and decoding, without a database.

use anyhow::Result;

use crate::{
    bench::{Bench, Side, Store},
    job::Tally,
    measure::Bar,
    programs::Program,
    report::Line,
    topic::Topic,
};

// With the client's default of a second, a loop over one queue stands still
// most of the time.
const TUNED: &[(&str, &str)] = &[("fetch.queue.backoff.ms", "5")];

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for size in [100, 1_024] {
        let topic = Topic { size, ..Topic::new(8, bench.scaled(4_000_000, 100_000)) };
        let ours = Side { store: Store::Nothing, ..Side::new(Program::Read, topic) };
        let plain = Side { program: Program::ByHandRead, ..ours.clone() };
        let tuned = Side { properties: TUNED, ..plain.clone() };
        let sides = [ours, tuned, plain];
        let ([ours, tuned, plain], tallies) = bench.rounds_of(&sides, Tally::rate).await?;
        let name = format!("read, {size} B");
        let batch = tallies[0].batch();
        let cpu = tallies.map(|it| it.cpu_micros as f64 / it.records as f64);
        let note = format!(
            "{:.2}, {:.2} and {:.2} µs of processor a record; {batch:.0} records in a batch",
            cpu[0], cpu[1], cpu[2]
        );
        let (tuned, plain) = (("raw, tuned", tuned), ("raw, default", plain));
        let line = Line::new(name.clone(), "records/s", ours.clone(), tuned, Bar::AtLeast(1.0));
        lines.push(line.with_note(note));
        lines.push(Line::new(name, "records/s", ours, plain, Bar::Reported));
        bench.forget(topic).await?;
    }
    Ok(lines)
}
