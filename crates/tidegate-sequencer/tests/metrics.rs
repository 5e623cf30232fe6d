//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use std::{collections::HashMap, sync::Arc};

use metrics::{SharedString, Unit};
use metrics_util::{
    CompositeKey,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use tidegate_core::{
    Batch, BoxError, Delivery, Identified, Lease, MessageId, Outcomes, Record, Sequenced,
};
use tidegate_inbox::{Inbox, InboxLayer};
use tidegate_sequencer::{Parked, Sequencer, SequencerLayer};
use tidegate_sql::{EffectError, Txn, effect_fn};
use tower::{Layer as _, ServiceExt as _};

use crate::common::TestDatabase;

/// A revision of the one entity.
#[derive(Clone, Debug)]
struct Revision(i64);

impl Identified for Revision {
    fn message_id(&self) -> MessageId {
        u128::from(self.0.unsigned_abs()).into()
    }
}

impl Sequenced for Revision {
    fn entity(&self) -> &[u8] {
        b"a"
    }

    fn revision(&self) -> i64 {
        self.0
    }
}

fn decode(record: &Record) -> Result<Revision, BoxError> {
    let text = str::from_utf8(record.payload.as_deref().unwrap_or_default())?;
    Ok(Revision(text.parse()?))
}

// The fifth is never taken.
async fn apply(_: &Txn, revision: &Revision) -> Result<(), EffectError> {
    match revision.0 {
        5 => Err(EffectError::poison("no")),
        _ => Ok(()),
    }
}

fn batch(lease: &Lease, revisions: &[i64]) -> Batch<Delivery<Revision>> {
    let delivery = |revision: &i64| {
        let record = Record::new(lease.partition().clone(), *revision, revision.to_string());
        Arc::new(Delivery::new(lease.clone(), record).with_value(Revision(*revision)))
    };
    Batch::new(revisions.iter().map(delivery).collect()).expect("it is not empty")
}

fn recording(snapshotter: &Snapshotter) -> HashMap<String, u64> {
    type Entry = (CompositeKey, Option<Unit>, Option<SharedString>, DebugValue);

    let value = |(key, _, description, value): Entry| {
        let (_, key) = key.into_parts();
        assert!(description.is_some(), "{key:?} is described");
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        #[expect(clippy::cast_possible_truncation, reason = "it is a small, whole number")]
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(value) => value.into_inner() as u64,
            DebugValue::Histogram(_) => unreachable!("there are none"),
        };
        (format!("{}{}", key.name(), labels.collect::<String>()), value)
    };
    snapshotter.snapshot().into_vec().into_iter().map(value).collect()
}

#[tokio::test]
async fn what_becomes_of_deltas_is_counted() {
    for test in TestDatabase::each().await {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let sequencer = metrics::with_local_recorder(&recorder, || Sequencer::parking(decode));
        let (_owner, lease) = common::lease();
        let inner = SequencerLayer::new(sequencer.clone()).layer(effect_fn(apply));
        let stack = InboxLayer::new(Inbox::new(test.database.clone())).layer(inner);
        let send = async |revisions: &[i64]| -> Outcomes {
            for _ in 0..5 {
                if let Ok(outcomes) = stack.clone().oneshot(batch(&lease, revisions)).await {
                    return outcomes;
                }
            }
            panic!("it goes on for ever");
        };
        // 3 and 5 wait; 2 releases 3; 4 would release 5, which fails alone.
        let _ = send(&[1, 3, 5]).await;
        let _ = send(&[2]).await;
        let _ = send(&[4]).await;
        stack.clone().oneshot(batch(&lease, &[0])).await.unwrap_err();
        let waiting = Parked::new(test.database.clone()).list(None, 9).await.unwrap();
        assert_eq!(waiting.len(), 1);
        let swept = sequencer.sweep(&test.database, &lease, effect_fn(apply)).await.unwrap();
        assert_eq!(swept.applied, 0);

        let recording = recording(&snapshotter);
        for (name, value) in [
            ("tidegate_sequencer_deltas_total place=next", 3),
            ("tidegate_sequencer_deltas_total place=early", 2),
            // 4, in the transaction that marks 5.
            ("tidegate_sequencer_deltas_total place=stale", 1),
            ("tidegate_sequencer_deltas_total place=refused", 1),
            ("tidegate_sequencer_released_total", 1),
            ("tidegate_sequencer_withheld_total", 1),
            // When they were parked.
            ("tidegate_sequencer_parked", 2),
        ] {
            assert_eq!(recording.get(name), Some(&value), "{name}");
        }
        assert_eq!(recording.len(), 7);
    }
}
