//! A second member joins under load, and leaves.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tidegate_oracle::Rules;
use tokio::time::sleep;

use crate::{
    bench::{Bench, Side},
    live::{Done, Live},
    measure::{Bar, Series},
    meter::now,
    programs::Program,
    report::Line,
    topic::Topic,
};

const PARTITIONS: i32 = 8;
const WORK: Duration = Duration::from_millis(5);
// Under the consumer protocol the broker says it: 5 s by default, 100 ms at least.
const HEARTBEAT: Duration = Duration::from_millis(100);

type Properties = &'static [(&'static str, &'static str)];

const PROTOCOLS: [(&str, Properties, f64); 3] = [
    ("range", &[("partition.assignment.strategy", "range")], 250.0),
    ("cooperative-sticky", &[("partition.assignment.strategy", "cooperative-sticky")], 1_100.0),
    ("consumer", &[("group.protocol", "consumer")], 250.0),
];

/// What was seen of one join and one leave, in milliseconds.
#[derive(Default)]
struct Seen {
    moved_at_join: Vec<f64>,
    moved_at_leave: Vec<f64>,
    retained: Vec<f64>,
    first: Vec<f64>,
    usual: Vec<f64>,
    twice: Vec<f64>,
}

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (protocol, properties, bar) in PROTOCOLS.into_iter().take(bench.scaled(3, 1)) {
        let (mut ours, mut theirs) = (Seen::default(), Seen::default());
        for round in 1..=bench.rounds() {
            for (program, seen) in [(Program::Once, &mut ours), (Program::ByHand, &mut theirs)] {
                let name = program.name();
                bench.progress.phase(&format!("run {round}, {protocol}: {name}"));
                let topic = Topic::new(PARTITIONS, 0);
                let side = Side { properties, ..Side::new(program, topic) };
                seen.add(bench, &side).await.with_context(|| format!("{protocol}, {name}"))?;
            }
        }
        lines.extend(compared(protocol, bar, &ours, &theirs));
    }
    Ok(lines)
}

fn compared(protocol: &str, bar: f64, ours: &Seen, theirs: &Seen) -> Vec<Line> {
    let line = |what: &str, unit, of: fn(&Seen) -> &Vec<f64>, bar| {
        let name = format!("handover, {protocol}, {what}");
        let (ours, theirs) = (Series::new(of(ours).clone()), Series::new(of(theirs).clone()));
        Line::absolute(name, unit, ours, ("by hand", theirs), bar)
    };
    let mut lines = vec![
        line("moved at a join", "ms", |seen| &seen.moved_at_join, Bar::AtMost(bar)),
        // The one that stays hears of it by its next heartbeat.
        line("moved at a leave", "ms", |seen| &seen.moved_at_leave, Bar::AtMost(bar)),
    ];
    if protocol != "range" {
        // What a drain takes at most is what a batch does.
        let usual = Series::new(ours.usual.clone()).median();
        let bar = Bar::AtMost(usual + 50.0);
        let retained = line("retained", "ms", |seen| &seen.retained, bar);
        lines.push(retained.with_note(format!("{usual:.0} ms between batches otherwise")));
    }
    lines.push(line("first effect", "ms", |seen| &seen.first, Bar::AtMost(1_500.0)));
    lines.push(line("done twice", "records", |seen| &seen.twice, Bar::AtMost(0.0)));
    lines
}

// ===== impl Seen =====

impl Seen {
    async fn add(&mut self, bench: &Bench, side: &Side) -> Result<()> {
        let phase = bench.scaled(Duration::from_secs(6), Duration::from_secs(3));
        let mut live = Live::begin(bench, side).await?;
        live.set_heartbeat(HEARTBEAT).await?;
        live.job_mut().work = WORK;
        // Enough for two members that have nothing else to do.
        let seconds = i32::try_from(phase.as_secs())? * 4;
        for _ in 0..seconds * 200 {
            for partition in 0..PARTITIONS {
                live.send(partition)?;
            }
        }
        let stays = live.start()?;
        live.applied(i64::from(PARTITIONS) * 20).await?;
        sleep(phase / 2).await;
        let joins = live.start()?;
        let joined = joins.started;
        sleep(phase).await;
        let left = now();
        let (_, theirs) = joins.end().await?;
        sleep(phase).await;
        let (_, ours) = stays.end().await?;
        live.end(Rules::default().unfinished()).await?;
        self.judge(&ours, &theirs, (joined, left), phase)
    }

    fn judge(
        &mut self,
        ours: &[Done],
        theirs: &[Done],
        (joined, left): (i64, i64),
        phase: Duration,
    ) -> Result<()> {
        ensure!(!theirs.is_empty(), "the second member did nothing");
        let phase = i64::try_from(phase.as_micros())?;
        let moved: BTreeSet<_> = theirs.iter().map(|done| done.partition).collect();
        let mut all: Vec<_> = ours.iter().chain(theirs).copied().collect();
        all.sort_unstable();
        let gap = |from: i64, to: i64, of: &dyn Fn(i32) -> bool| {
            let partitions = (0..PARTITIONS).filter(|it| of(*it));
            let gaps = partitions.map(|it| longest_gap(&all, it, from, to));
            gaps.max().unwrap_or(0) as f64 / 1e3
        };
        let (is_moved, is_retained) =
            (|it: i32| moved.contains(&it), |it: i32| !moved.contains(&it));
        let at_join = |of: &dyn Fn(i32) -> bool| gap(joined, joined + phase, of);
        let at_leave = |of: &dyn Fn(i32) -> bool| gap(left, left + phase, of);
        self.moved_at_join.push(at_join(&is_moved));
        self.moved_at_leave.push(at_leave(&is_moved));
        self.retained.push(at_join(&is_retained).max(at_leave(&is_retained)));
        self.usual.push(gap(joined - phase / 2, joined, &|_| true));
        let first = theirs.iter().map(|done| done.at).min().unwrap_or(i64::MAX);
        self.first.push((first - joined) as f64 / 1e3);
        let places: BTreeSet<_> = all.iter().map(|done| (done.partition, done.offset)).collect();
        self.twice.push((all.len() - places.len()) as f64);
        Ok(())
    }
}

/// The longest time in which nothing of a partition was done.
fn longest_gap(all: &[Done], partition: i32, from: i64, to: i64) -> i64 {
    let times = all.iter().filter(|done| done.partition == partition).map(|done| done.at);
    let mut times: Vec<_> = times.filter(|at| (from..to).contains(at)).collect();
    times.insert(0, from);
    times.push(to);
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Done, longest_gap};

    #[test]
    fn a_gap_is_between_two_records_of_a_partition_and_at_both_ends() {
        let done = [(100, 0), (300, 1), (550, 0)];
        let done = done.map(|(at, partition)| Done { at, partition, offset: 0 });
        assert_eq!(longest_gap(&done, 0, 0, 600), 450);
        assert_eq!(longest_gap(&done, 1, 0, 600), 300);
        assert_eq!(longest_gap(&done, 0, 400, 600), 150);
    }
}
