use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::KafkaError,
    topic_partition_list::{Offset, TopicPartitionList},
};

use super::BrokerFailure;

const PATIENCE: Duration = Duration::from_secs(10);
// For what concerns no group.
const NO_GROUP: &str = "tidegate-testkit";

/// Consumers that look at groups, and are members of none.
pub(super) struct Observers {
    bootstrap: String,
    // One a group: making one takes longer than asking.
    consumers: Mutex<HashMap<String, BaseConsumer>>,
}

// ===== impl Observers =====

impl Observers {
    pub(super) fn new(bootstrap: String) -> Self {
        Self { bootstrap, consumers: Mutex::default() }
    }

    pub(super) fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: i32,
    ) -> Result<BTreeMap<i32, Option<i64>>, BrokerFailure> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, partitions - 1);
        let answered = self.with(group, "read committed offsets", |consumer| {
            consumer.committed_offsets(asked, PATIENCE)
        })?;
        let elements = answered.elements();
        Ok(elements
            .iter()
            .map(|element| match element.offset() {
                Offset::Offset(offset) => (element.partition(), Some(offset)),
                _ => (element.partition(), None),
            })
            .collect())
    }

    pub(super) fn commit(
        &self,
        group: &str,
        topic: &str,
        offsets: impl IntoIterator<Item = (i32, i64)>,
    ) -> Result<(), BrokerFailure> {
        self.with(group, "commit offsets", |consumer| {
            let mut list = TopicPartitionList::new();
            for (partition, offset) in offsets {
                list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
            }
            // The client has a word for a commit of nothing.
            if list.count() == 0 { Ok(()) } else { consumer.commit(&list, CommitMode::Sync) }
        })
    }

    pub(super) fn watermarks(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<(i64, i64), BrokerFailure> {
        self.with(NO_GROUP, "look up the ends of a partition", |consumer| {
            consumer.fetch_watermarks(topic, partition, PATIENCE)
        })
    }

    fn with<T>(
        &self,
        group: &str,
        what: &'static str,
        ask: impl FnOnce(&BaseConsumer) -> Result<T, KafkaError>,
    ) -> Result<T, BrokerFailure> {
        let failed = |source| BrokerFailure::Client { what, source };
        let mut consumers = self.lock();
        if !consumers.contains_key(group) {
            let consumer = self.consumer(group).map_err(failed)?;
            consumers.insert(group.to_owned(), consumer);
        }
        ask(&consumers[group]).map_err(failed)
    }

    fn consumer(&self, group: &str) -> Result<BaseConsumer, KafkaError> {
        ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "500")
            .create()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BaseConsumer>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
