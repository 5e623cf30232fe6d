//! How soon a record is done, from when it is produced until its effect is
//! committed.

use std::time::Duration;

use anyhow::Result;
use tidegate_oracle::Rules;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    bench::{Bench, Side},
    live::{Done, Live},
    measure::{Bar, Series, quantile},
    programs::Program,
    report::Line,
    topic::Topic,
};

/// One record at a time, into an idle partition.
pub(super) async fn idle(bench: &Bench) -> Result<Vec<Line>> {
    let count = bench.scaled(300, 20);
    let mut quantiles = [const { [const { Vec::new() }; 2] }; 2];
    for round in 1..=bench.rounds() {
        for (program, quantiles) in [Program::Once, Program::ByHand].into_iter().zip(&mut quantiles)
        {
            bench.progress.phase(&format!("run {round} of {}: {}", bench.rounds(), program.name()));
            let mut live = Live::begin(bench, &Side::new(program, Topic::new(1, 0))).await?;
            let member = live.start()?;
            live.send(0)?;
            live.applied(1).await?;
            for number in 0..count {
                // Not in step with anything.
                sleep(Duration::from_millis(20 + number * 7 % 13)).await;
                live.send(0)?;
            }
            live.applied(live.written()).await?;
            let (_, done) = member.end().await?;
            let millis = millis(&live, &done, |it| it.offset > 0);
            live.end(Rules::default()).await?;
            for (share, quantiles) in [0.5, 0.99].into_iter().zip(quantiles) {
                quantiles.push(quantile(&millis, share));
            }
        }
    }
    let [ours, theirs] = quantiles;
    let pairs = ["median", "99 %"].into_iter().zip(ours).zip(theirs);
    let line = |((name, ours), theirs)| {
        let (ours, theirs) = (Series::new(ours), ("by hand", Series::new(theirs)));
        Line::new(format!("latency, {name}"), "ms", ours, theirs, Bar::AtMost(1.1))
    };
    Ok(pairs.map(line).collect())
}

/// One partition that is ten times as hot as the others, and what those see of
/// it.
pub(super) async fn hot(bench: &Bench) -> Result<Vec<Line>> {
    const PARTITIONS: i32 = 8;
    let ticks = bench.scaled(250, 25);
    let mut quantiles = [const { [const { Vec::new() }; 2] }; 2];
    for round in 1..=bench.rounds() {
        for (heat, quantiles) in [10, 1].into_iter().zip(&mut quantiles) {
            bench.progress.phase(&format!("run {round} of {}: {heat}", bench.rounds()));
            let side = Side::new(Program::Once, Topic::new(PARTITIONS, 0));
            let mut live = Live::begin(bench, &side).await?;
            let member = live.start()?;
            for partition in 0..PARTITIONS {
                live.send(partition)?;
            }
            live.applied(live.written()).await?;
            let mut tick = interval(Duration::from_millis(20));
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for _ in 0..ticks {
                tick.tick().await;
                for partition in 1..PARTITIONS {
                    live.send(partition)?;
                }
                for _ in 0..heat {
                    live.send(0)?;
                }
            }
            live.applied(live.written()).await?;
            let (_, done) = member.end().await?;
            let millis = millis(&live, &done, |it| it.offset > 0 && it.partition > 0);
            live.end(Rules::default()).await?;
            for (share, quantiles) in [0.5, 0.99].into_iter().zip(quantiles) {
                quantiles.push(quantile(&millis, share));
            }
        }
    }
    let [hot, even] = quantiles;
    let pairs = ["median", "99 %"].into_iter().zip(hot).zip(even);
    let line = |((name, hot), even)| {
        let (hot, even) = (Series::new(hot), ("no hot one", Series::new(even)));
        let line = Line::new(format!("hot-partition, {name}"), "ms", hot, even, Bar::Reported);
        line.with_note("of the seven others")
    };
    Ok(pairs.map(line).collect())
}

fn millis(live: &Live<'_>, done: &[Done], counts: impl Fn(&Done) -> bool) -> Vec<f64> {
    let latencies = live.latencies(done).into_iter();
    latencies.filter(|(done, _)| counts(done)).map(|(_, micros)| micros / 1e3).collect()
}
