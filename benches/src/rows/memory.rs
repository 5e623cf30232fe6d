//! What is resident when the log is long and the effect is slow.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::{
    bench::{Bench, Side, Store},
    job::Job,
    measure::{Bar, Series},
    programs::Program,
    report::Line,
    topic::Topic,
};

const PARTITIONS: i32 = 64;
const SIZE: usize = 10 * 1024;

/// What `KafkaConfig::in_flight_in_all` states: what a source has read and not
/// answered, 512 MiB; and what the client holds for each partition, 4 MiB, and
/// one fetch of 1 MiB that it overshoots that by.
const BOUND: f64 = (512 + 5 * PARTITIONS) as f64;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let each = bench.scaled(100, 2) * 1024 * 1024 / SIZE as u64;
    let topic = Topic { size: SIZE, ..Topic::new(PARTITIONS, each * 64) };
    let side = Side { store: Store::Nothing, ..Side::new(Program::Read, topic) };
    bench.topic(topic).await?;
    let mut resident = Vec::new();
    for round in 1..=bench.rounds().min(3) {
        bench.progress.phase(&format!("run {round}"));
        let work = Duration::from_millis(50);
        let job = Job { work, ..bench.job(&side, String::new()) };
        let running = job.start(&bench.command(job.program)?)?;
        // Longer than everything needs to fill up.
        sleep(bench.scaled(Duration::from_secs(20), Duration::from_secs(5))).await;
        let tally = running.end().await?;
        let committed = bench.committed(&job).await?;
        ensure!(committed == tally.records, "{committed} of {} are committed", tally.records);
        resident.push(tally.resident_bytes as f64 / f64::from(1 << 20));
    }
    bench.forget(topic).await?;
    let bound = Series::new(vec![BOUND; resident.len()]);
    let resident = Series::new(resident);
    let bound = ("the stated bound", bound);
    Ok(vec![Line::new("memory, 64 partitions", "MiB", resident, bound, Bar::AtMost(1.25))])
}
