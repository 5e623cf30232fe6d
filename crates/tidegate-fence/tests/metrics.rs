//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-frontier/tests/support/recorder.rs"]
mod recorder;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use metrics::Unit;
use tidegate_core::{BoxError, Delivery};
use tidegate_fence::FenceLayer;
use tidegate_testkit::Strict;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{delivery, lease},
};

#[tokio::test]
async fn a_refusal_is_counted_by_the_state_of_the_lease() {
    let (owner, lease) = lease();
    let (layer, recorded) = record(|| FenceLayer::new(lease.clone()));
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(()));
    let fence = layer.layer(Strict::new(inner));
    fence.clone().oneshot(delivery(&lease, 0)).await.unwrap();
    assert_eq!(recorded.values(), [].into());

    owner.drain();
    fence.clone().oneshot(delivery(&lease, 1)).await.unwrap_err();
    owner.lose();
    fence.oneshot(delivery(&lease, 2)).await.unwrap_err();

    let expected = [
        value("tidegate_fence_refused_total{state=draining}", 1.0, Unit::Count),
        value("tidegate_fence_refused_total{state=lost}", 1.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), expected.into());
}
