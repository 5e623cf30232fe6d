//! What each layer above a batch costs a delivery, in memory.

use anyhow::Result;
use tokio::{task::spawn_blocking, time::Instant};

use crate::{
    allocations,
    bench::Bench,
    measure::{Bar, Series},
    micro::{self, Layers, Load},
    report::Line,
};

const BATCH: usize = 100;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    bench.progress.phase("in memory");
    let (rounds, deliveries) = (bench.rounds() * 4, bench.scaled(200_000, 20_000));
    Ok(spawn_blocking(move || measure(rounds, deliveries)).await?)
}

fn measure(rounds: usize, deliveries: i64) -> Vec<Line> {
    micro::telemetry();
    let load = |layers| Load { layers, deliveries, batch: BATCH, window: 1_000, in_turn: false };
    let mut nanos = Layers::ALL.map(|_| Vec::new());
    for _ in 0..rounds {
        for (layers, nanos) in Layers::ALL.into_iter().zip(&mut nanos) {
            let since = Instant::now();
            micro::run(load(layers));
            nanos.push(since.elapsed().as_nanos() as f64 / deliveries as f64);
        }
    }
    let nanos = nanos.map(Series::new);
    let counts = Layers::ALL
        .map(|layers| allocations::count(|| micro::run(load(layers))) as f64 / deliveries as f64);
    let [direct, above @ ..] = &nanos;
    let names = ["Queue", "+ Decode", "+ Fence", "+ Frontier"];
    let mut lines = Vec::new();
    for (index, (name, series)) in names.into_iter().zip(above).enumerate() {
        let is_whole = index + 1 == names.len();
        let bar = if is_whole { Bar::AtMost(20.0) } else { Bar::Reported };
        let direct = ("a direct call", direct.clone());
        let share = series.median() - nanos[index].median();
        let note = format!("{share:.0} ns more, {:.2} allocations", counts[index + 1]);
        let name = format!("layer, {name}");
        lines.push(Line::new(name, "ns", series.clone(), direct, bar).with_note(note));
    }
    let whole = Series::new(vec![counts[names.len()]]);
    lines.push(Line::of_one("layer, allocations", "a delivery", whole, Bar::AtMost(4.0)));
    lines
}
