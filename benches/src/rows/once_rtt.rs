//! A plain effect on each record, with a database that is a network away.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    bench::{Bench, Side},
    delay,
    job::Tally,
    measure::Bar,
    programs::Program,
    report::Line,
    topic::Topic,
};

/// Half of a round trip.
const ONE_WAY: Duration = Duration::from_micros(500);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Line>> {
    let url = &bench.services.database;
    let (_, rest) = url.split_once('@').context("the URL has no user")?;
    let server = rest.split(['/', '?']).next().unwrap_or(rest);
    let through = Some(delay::start(server, ONE_WAY)?);
    let topic = Topic::new(1, bench.scaled(4_000, 500));
    let one = Side { through, ..Side::new(Program::Once, topic) };
    let four = Side { lanes: 4, ..one.clone() };
    let by_hand = Side { program: Program::ByHand, ..one.clone() };
    let many = Topic::new(1, bench.scaled(40_000, 4_000));
    let batch = Side { program: Program::OnceBatch, topic: many, batch: 100, ..one.clone() };
    let sides = [one, four, batch, by_hand];
    let ([one, four, batch, by_hand], tallies) =
        bench.rounds_of(&sides, Tally::steady_rate).await?;
    let line = |name: &str, ours, tally: &Tally, bar| {
        let note = format!("{:.0} records in a transaction", tally.batch());
        let theirs = ("by hand", by_hand.clone());
        Line::new(format!("once-rtt, {name}"), "records/s", ours, theirs, bar).with_note(note)
    };
    Ok(vec![
        line("1 lane", one, &tallies[0], Bar::AtLeast(5.0)),
        line("4 lanes", four, &tallies[1], Bar::AtLeast(5.0)),
        line("batch of up to 100", batch, &tallies[2], Bar::AtLeast(60.0)),
    ])
}
