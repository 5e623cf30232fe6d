//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-frontier/tests/support/recorder.rs"]
mod recorder;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use metrics::Unit;
use tidegate_core::{BoxError, Delivery, Record};
use tidegate_decode::DecodeLayer;
use tidegate_testkit::Strict;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{delivery, lease},
};

#[tokio::test]
async fn what_cannot_be_decoded_is_counted() {
    let (_owner, lease) = lease();
    let decoder = |_: &Record| Err::<(), _>("no");
    let (layer, recorded) = record(|| DecodeLayer::new(decoder));
    let inner = service_fn(async |_: Delivery| Ok::<_, BoxError>(()));
    layer.layer(Strict::new(inner)).oneshot(delivery(&lease, 0)).await.unwrap_err();
    let expected = [value("tidegate_decode_undecodable_total", 1.0, Unit::Count)];
    assert_eq!(recorded.values(), expected.into());
}
