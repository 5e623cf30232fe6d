//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-frontier/tests/support/recorder.rs"]
mod recorder;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use metrics::Unit;
use tidegate_core::{
    Batch, Class, DeadLetters, Delivery, Error, Frontier, Lease, Outcome, Outcomes, Record,
    TopicPartition,
};
use tidegate_dead_letter::DeadLetterLayer;
use tidegate_testkit::Strict;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{delivery, lease},
};

/// Has buried offset 7, and buries all it is given.
#[derive(Clone, Debug)]
struct Letters;

impl DeadLetters for Letters {
    async fn bury(&self, _: &Lease, _: &Record, _: &Error) -> Result<(), Error> {
        Ok(())
    }

    async fn buried(&self, _: &TopicPartition, _: i64) -> Result<BTreeSet<i64>, Error> {
        Ok(BTreeSet::from([7]))
    }
}

#[tokio::test]
async fn burials_are_counted_by_place_and_so_is_what_is_remembered() {
    let (_owner, lease) = lease();
    let frontier = Frontier::starting_at(0);
    let (layer, recorded) = record(|| DeadLetterLayer::new(Letters, &lease, &frontier));
    let poison = || Error::new(Class::Poison, "no such account");

    let single = service_fn(async |_: Delivery| Err::<Outcome, _>(poison()));
    let single = layer.layer(Strict::new(single));
    for offset in [6, 7] {
        let outcome = single.clone().oneshot(delivery(&lease, offset)).await.unwrap();
        assert_eq!(outcome, Outcome::Buried);
    }
    let batched = service_fn(async |_: Batch<Delivery>| Err::<Outcomes, _>(poison()));
    let batched = layer.layer(Strict::new(batched));
    let deliveries = [7, 8].map(|offset| delivery(&lease, offset).into());
    let batch = Batch::new(deliveries.into()).unwrap();
    assert_eq!(batched.oneshot(batch).await.unwrap().len(), 2);

    let expected = [
        value("tidegate_dead_letter_buried_total{place=decode}", 1.0, Unit::Count),
        value("tidegate_dead_letter_buried_total{place=queue}", 1.0, Unit::Count),
        value("tidegate_dead_letter_remembered_total{place=decode}", 1.0, Unit::Count),
        value("tidegate_dead_letter_remembered_total{place=queue}", 1.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), expected.into());
}
