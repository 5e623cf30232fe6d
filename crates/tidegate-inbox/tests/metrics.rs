//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use metrics::{SharedString, Unit};
use metrics_util::{
    CompositeKey,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use tidegate_core::{
    Batch, Delivery, Epoch, Error, Identified, Lease, MessageId, Outcome, Outcomes, Record, Terms,
    TopicPartition,
};
use tidegate_inbox::{Inbox, InboxLayer, Retention};
use tidegate_sql::InTransaction;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::common::TestDatabase;

struct Message(u128);

impl Identified for Message {
    fn message_id(&self) -> MessageId {
        self.0.into()
    }
}

fn recording(snapshotter: &Snapshotter) -> HashMap<String, u64> {
    type Entry = (CompositeKey, Option<Unit>, Option<SharedString>, DebugValue);

    let count = |(key, _, description, value): Entry| {
        let (_, key) = key.into_parts();
        assert!(description.is_some(), "{key:?} is described");
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let DebugValue::Counter(count) = value else { unreachable!("there are counters only") };
        (format!("{}{}", key.name(), labels.collect::<String>()), count)
    };
    snapshotter.snapshot().into_vec().into_iter().map(count).collect()
}

#[tokio::test]
async fn what_becomes_of_messages_is_counted() {
    for test in TestDatabase::each().await {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let inbox = || Inbox::new(test.database.clone());
        let inbox = metrics::with_local_recorder(&recorder, inbox);
        let terms = Terms { acknowledged: Some(0), ..Terms::default() };
        let partition = TopicPartition::new("topic", 0);
        let (owner, lease) = Lease::grant_on(partition, Epoch::new(1, "a"), terms);

        // The first batch sets something free.
        let mores = Arc::new(Mutex::new(vec![false, false, true]));
        let effect = service_fn(move |request: InTransaction<Batch<Delivery<Message>>>| {
            let more = mores.lock().unwrap().pop().unwrap_or_default();
            let outcomes = Outcomes::all(Outcome::Applied, request.request.len());
            async move { Ok::<_, Error>(outcomes.with_more(more)) }
        });
        let stack = InboxLayer::new(inbox.clone()).layer(effect);
        let send = async |messages: &[(i64, u128, &'static str)]| {
            let delivery = |(offset, id, payload): &(i64, u128, &'static str)| {
                let record = Record::new(lease.partition().clone(), *offset, *payload);
                Arc::new(Delivery::new(lease.clone(), record).with_value(Message(*id)))
            };
            let batch = Batch::new(messages.iter().map(delivery).collect()).unwrap();
            stack.clone().oneshot(batch).await
        };
        let _ = send(&[(0, 1, "a"), (1, 2, "a"), (2, 1, "a")]).await.unwrap();
        owner.acknowledge(1);
        inbox.prune(&lease, &Retention::of_offsets(0)).await.unwrap();
        let _ = send(&[(0, 1, "a"), (3, 2, "a"), (4, 3, "a")]).await.unwrap();
        send(&[(5, 2, "b")]).await.unwrap_err();

        let recording = recording(&snapshotter);
        for (name, count) in [
            ("tidegate_inbox_claims_total result=new", 3),
            ("tidegate_inbox_claims_total result=duplicate", 2),
            ("tidegate_inbox_claims_total result=too_old", 1),
            ("tidegate_inbox_claims_total result=conflict", 1),
            ("tidegate_inbox_claimed_again_total", 0),
            ("tidegate_inbox_further_transactions_total", 1),
            ("tidegate_inbox_pruned_total", 1),
        ] {
            assert_eq!(recording.get(name), Some(&count), "{name}");
        }
        assert_eq!(recording.len(), 7);
    }
}

#[tokio::test]
async fn a_batch_is_claimed_again_where_a_streak_of_news_ends() {
    let Some(test) = TestDatabase::postgres().await else { return };
    for (news, again) in [(15, 0), (16, 1)] {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let inbox = || Inbox::new(test.database.clone());
        let inbox = metrics::with_local_recorder(&recorder, inbox);
        let (_owner, lease) = common::lease();
        let effect = service_fn(|request: InTransaction<Batch<Delivery<Message>>>| {
            let outcomes = Outcomes::all(Outcome::Applied, request.request.len());
            async move { Ok::<_, Error>(outcomes) }
        });
        let stack = InboxLayer::new(inbox).layer(effect);
        let first = 100 * news;
        // The last one was there.
        for id in (first..first + news).chain([first]) {
            let record = Record::new(lease.partition().clone(), id, "a");
            let message = Message(id.unsigned_abs().into());
            let batch = Batch::of_one(Delivery::new(lease.clone(), record).with_value(message));
            let _ = stack.clone().oneshot(batch).await.unwrap();
        }
        let recording = recording(&snapshotter);
        for (name, count) in [
            ("tidegate_inbox_claims_total result=new", news.unsigned_abs()),
            ("tidegate_inbox_claims_total result=duplicate", 1),
            ("tidegate_inbox_claimed_again_total", again),
        ] {
            assert_eq!(recording.get(name), Some(&count), "{name}");
        }
    }
}
