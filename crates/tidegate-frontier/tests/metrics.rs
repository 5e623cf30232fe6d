//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "support/recorder.rs"]
mod recorder;
mod support;

use metrics::Unit;
use tidegate_core::{Class, Delivery, Error, Frontier, Outcome};
use tidegate_frontier::FrontierLayer;
use tidegate_testkit::Strict;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{delivery, lease},
};

#[tokio::test]
async fn each_ticket_is_counted_once_however_it_ends() {
    let frontier = Frontier::starting_at(0);
    let (layer, recorded) = record(|| FrontierLayer::new(frontier.clone()));
    let inner = service_fn(async |delivery: Delivery| match delivery.record.offset {
        1 => Err(Error::new(Class::Poison, "no such account")),
        _ => Ok(Outcome::Duplicate),
    });
    let stack = layer.layer(Strict::new(inner));
    let (_owner, lease) = lease();
    let send = |offset| stack.clone().oneshot(delivery(&lease, offset));

    send(0).await.unwrap();
    send(1).await.unwrap_err();
    let mut ready = stack.clone().ready_oneshot().await.unwrap();
    drop(ready.call(delivery(&lease, 2)));
    frontier.close();
    send(3).await.unwrap();

    let expected = [
        value("tidegate_frontier_abandoned_total{cause=dropped}", 1.0, Unit::Count),
        value("tidegate_frontier_abandoned_total{cause=poison}", 1.0, Unit::Count),
        value("tidegate_frontier_late_total", 1.0, Unit::Count),
        value("tidegate_frontier_outcomes_total{outcome=duplicate}", 2.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), expected.into());
}
