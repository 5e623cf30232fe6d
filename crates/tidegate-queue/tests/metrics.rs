//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-frontier/tests/support/recorder.rs"]
mod recorder;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use metrics::Unit;
use tidegate_core::{Batch, BoxError, Class, Delivery, Error, Outcome, Outcomes};
use tidegate_queue::{QueueConfig, QueueLayer};
use tidegate_testkit::Strict;
use tokio::time;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{delivery, lease},
};

const RECORDS: &str = "tidegate_queue_in_flight_records";
const BYTES: &str = "tidegate_queue_in_flight_bytes";

#[tokio::test(start_paused = true)]
async fn batches_and_what_is_in_flight_are_recorded() {
    let (layer, recorded) = record(|| QueueLayer::by_key(QueueConfig::default()));
    let inner = service_fn(async |batch: Batch<Delivery>| {
        time::sleep(Duration::from_millis(3)).await;
        batch.waited(Duration::from_millis(1));
        Ok::<_, BoxError>(Outcomes::all(Outcome::Applied, batch.len()))
    });
    let mut queue = layer.layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let mut responses = Vec::new();
    for offset in 0..3 {
        responses.push(queue.ready().await.unwrap().call(delivery(&lease, offset)));
    }
    time::sleep(Duration::from_millis(1)).await;
    let running = [value(BYTES, 21.0, Unit::Bytes), value(RECORDS, 3.0, Unit::Count)];
    assert_eq!(recorded.values(), running.into());

    for response in responses {
        assert_eq!(response.await.unwrap(), Outcome::Applied);
    }
    let done = [
        value("tidegate_queue_batch_records", 3.0, Unit::Count),
        value("tidegate_queue_batch_seconds", 0.004, Unit::Seconds),
        value(BYTES, -21.0, Unit::Bytes),
        value(RECORDS, -3.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), done.into(), "nothing is in flight any more");
}

#[tokio::test(start_paused = true)]
async fn bisections_halts_and_what_a_drain_leaves_are_counted() {
    let (layer, recorded) = record(|| QueueLayer::by_key(QueueConfig::default()));
    let inner = service_fn(async |batch: Batch<Delivery>| match batch.first().record.offset {
        0 => Ok(Outcomes::all(Outcome::Applied, batch.len())),
        _ => Err(Error::new(Class::Poison, "no such account")),
    });
    let mut queue = layer.layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let mut responses = Vec::new();
    for offset in 0..3 {
        responses.push(queue.ready().await.unwrap().call(delivery(&lease, offset)));
    }
    for response in responses {
        let _ = response.await;
    }
    let values = recorded.values();
    let counted = |name: &str| values.get(name).map(|(count, _)| *count);
    assert_eq!(counted("tidegate_queue_bisections_total"), Some(1.0));
    assert_eq!(counted("tidegate_queue_halts_total{class=poison}"), Some(1.0));

    let mut queue = layer.layer(Strict::new(service_fn(async |_: Batch<Delivery>| {
        std::future::pending::<Result<Outcomes, BoxError>>().await
    })));
    let (owner, lease) = support::lease();
    let mut responses = Vec::new();
    for offset in 0..3 {
        responses.push(queue.ready().await.unwrap().call(delivery(&lease, offset)));
    }
    time::sleep(Duration::from_millis(1)).await;
    owner.drain();
    time::sleep(Duration::from_millis(1)).await;
    let left = recorded.values().get("tidegate_queue_unstarted_total").copied();
    assert_eq!(left, Some((2.0, Unit::Count)), "the first one runs");
}
