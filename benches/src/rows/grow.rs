//! What a record costs when there is a lot of everything else.

use anyhow::Result;
use tokio::{task::spawn_blocking, time::Instant};

use crate::{
    bench::{Bench, Side, Store},
    job::Tally,
    measure::{Bar, Series},
    micro::{self, Layers, Load},
    programs::Program,
    report::Line,
    topic::Topic,
};

/// Many partitions.
pub(super) async fn partitions(bench: &Bench) -> Result<Vec<Line>> {
    let records = bench.scaled(4_000_000, 50_000);
    let many = bench.scaled(1_000, 50);
    let side = |partitions| Side {
        store: Store::Nothing,
        ..Side::new(Program::Read, Topic::new(partitions, records))
    };
    let by_hand = Side { program: Program::ByHandRead, ..side(many) };
    let sides = [side(many), side(1), by_hand];
    // That so many partitions begin, one after the other, is no cost of a record.
    let cost = |tally: &Tally| 1e9 / tally.steady_rate();
    let ([many_cost, one, by_hand], tallies) = bench.rounds_of(&sides, cost).await?;
    let cpu = tallies.map(|it| it.cpu_micros as f64 / it.records as f64);
    let note = format!("{:.2} and {:.2} µs of processor a record", cpu[0], cpu[1]);
    let name = format!("grow-partitions, {many}");
    let line = Line::new(&name, "ns", many_cost.clone(), ("1 partition", one), Bar::AtMost(1.2));
    let theirs = ("raw, as many", by_hand);
    Ok(vec![line.with_note(note), Line::new(name, "ns", many_cost, theirs, Bar::Reported)])
}

/// Much in flight.
pub(super) async fn in_flight(bench: &Bench) -> Result<Vec<Line>> {
    let (rounds, deliveries) = (bench.rounds(), bench.scaled(2_000_000, 200_000));
    let measured = spawn_blocking(move || {
        let cost = |window| {
            let layers = Layers::Frontier;
            let since = Instant::now();
            micro::run(Load { layers, deliveries, batch: 100, window, in_turn: true });
            since.elapsed().as_nanos() as f64 / deliveries as f64
        };
        let pairs = (0..rounds).map(|_| (cost(100_000), cost(10)));
        pairs.collect::<(Vec<_>, Vec<_>)>()
    });
    let (many, few) = measured.await?;
    let (many, few) = (Series::new(many), Series::new(few));
    let bar = Bar::AtMost(1.2);
    Ok(vec![Line::new("grow-inflight, 100 000", "ns", many, ("10 in flight", few), bar)])
}

/// A large inbox.
pub(super) async fn inbox(bench: &Bench) -> Result<Vec<Line>> {
    let records = bench.scaled(100_000, 5_000);
    let (many, few) = bench.scaled((10_000_000, 100_000), (50_000, 1_000));
    let mut lines = Vec::new();
    for random_ids in [false, true] {
        let topic = Topic { random_ids, ..Topic::new(1, records) };
        let side = Side::new(Program::OnceBatch, topic);
        let schemas = [bench.schema(side.store).await?, bench.schema(side.store).await?];
        for (schema, rows) in schemas.iter().zip([many, few]) {
            bench.progress.phase(&format!("filling an inbox with {rows} markers"));
            schema.execute(&markers(rows, random_ids)).await?;
            schema.execute("VACUUM ANALYZE tidegate_inbox").await?;
        }
        let mut costs = [Vec::new(), Vec::new()];
        for round in 1..=bench.rounds() {
            for (schema, costs) in schemas.iter().zip(&mut costs) {
                bench.progress.phase(&format!("run {round} of {}", bench.rounds()));
                let tally = bench.run_in(&side, schema).await?;
                costs.push(1e6 / tally.steady_rate());
                schema.execute(FORGET).await?;
                schema.execute("VACUUM tidegate_inbox").await?;
            }
        }
        for schema in &schemas {
            schema.drop().await?;
        }
        let [many_cost, few_cost] = costs.map(Series::new);
        let (name, bar) = match random_ids {
            false => ("grow-inbox, ordered ids", Bar::AtMost(1.3)),
            true => ("grow-inbox, random ids", Bar::Reported),
        };
        let few_cost = (format!("{few} markers"), few_cost);
        let line = Line::new(name, "µs", many_cost, few_cost, bar);
        lines.push(line.with_note(format!("{many} markers, batch handler")));
    }
    Ok(lines)
}

/// Makes markers that were there before, of a topic that nobody reads any more:
/// with ids before those of the topic that is read, or anywhere between them.
fn markers(count: i64, random: bool) -> String {
    let id = if random {
        "lpad(to_hex(hashint8extended(n, 0) & 9223372036854775807), 32, '0')"
    } else {
        "lpad(to_hex(n), 32, '0')"
    };
    format!(
        "WITH ns AS (
            INSERT INTO tidegate_namespace (target, generation) VALUES ('main', 1) RETURNING ns
        ), source AS (
            INSERT INTO tidegate_source (ns, topic, part, low, floor, gap, resumed, reached)
            SELECT ns, 'before', 0, 0, 0, 0, 0, 0 FROM ns RETURNING ns, source
        )
        INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
        SELECT ns, decode({id}, 'hex'), decode(md5(n::text), 'hex'), source, n
        FROM source, generate_series(1, {count}) AS n ON CONFLICT DO NOTHING"
    )
}

/// Leaves only those.
const FORGET: &str = "
    DELETE FROM tidegate_inbox WHERE source IN
        (SELECT source FROM tidegate_source WHERE topic <> 'before');
    DELETE FROM tidegate_source WHERE topic <> 'before';
    TRUNCATE tidegate_entity, entry";
