//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-frontier/tests/support/recorder.rs"]
mod recorder;
#[path = "../../tidegate-frontier/tests/support/mod.rs"]
mod support;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use metrics::Unit;
use tidegate_core::{Batch, BoxError, Delivery, Outcome, Outcomes};
use tidegate_retry::{Backoff, RetryLayer};
use tokio::time::timeout;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    recorder::{record, value},
    support::{Strict, delivery, lease},
};

static TRIES: AtomicU32 = AtomicU32::new(0);

#[tokio::test(start_paused = true)]
async fn retries_are_counted_and_how_they_ended() {
    let (layer, recorded) = record(|| RetryLayer::new(Backoff::default()));
    let (owner, lease) = lease();
    let inner =
        service_fn(async |batch: Batch<Delivery>| match TRIES.fetch_add(1, Ordering::Relaxed) {
            2 => Ok(Outcomes::all(Outcome::Applied, batch.len())),
            _ => Err(BoxError::from("not now")),
        });
    let stack = layer.layer(Strict::new(inner));
    let batch = Batch::of_one(delivery(&lease, 0));
    assert_eq!(stack.clone().oneshot(batch.clone()).await.unwrap().len(), 1);
    let expected = [
        value("tidegate_retry_recovered_total", 1.0, Unit::Count),
        value("tidegate_retry_retries_total", 2.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), expected.into());

    let left = tokio::spawn(stack.oneshot(batch));
    tokio::task::yield_now().await;
    owner.drain();
    let left = timeout(Duration::from_secs(3_600), left).await;
    left.expect("a drain ends it").unwrap().unwrap_err();
    let expected = [
        value("tidegate_retry_given_up_total", 1.0, Unit::Count),
        value("tidegate_retry_retries_total", 1.0, Unit::Count),
    ];
    assert_eq!(recorded.values(), expected.into());
}
