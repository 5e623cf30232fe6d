//! Reads the topic, and the group's committed offsets.

mod topic;
mod watch;

use std::{sync::Arc, time::Duration};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    topic_partition_list::{Offset, TopicPartitionList},
};

pub use self::watch::GroupWatch;
use crate::{Committed, Log, Meaning, Partition, RawRecord};

/// A Kafka cluster, read by a client of the oracle's own.
///
/// It reads what is committed (`read_committed`), joins no group, and commits
/// nothing.
///
/// ```no_run
/// use std::time::Duration;
///
/// use tidegate_oracle::{Evidence, Kafka, KafkaFailure, ledger};
///
/// async fn evidence() -> Result<Evidence, KafkaFailure> {
///     let kafka = Kafka::new("127.0.0.1:9092");
///     let watch = kafka.watch("ledger", ["transfers"], Duration::from_millis(20)).await?;
///
///     // The workers work, until they are at rest.
///
///     let mut evidence = Evidence::default();
///     evidence.committed = Some(watch.stop().await?);
///     evidence.log = kafka.log(["transfers"], ledger::meaning(ledger::AMOUNT_LIMIT)).await?;
///     Ok(evidence)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Kafka {
    properties: Vec<(String, String)>,
    deadline: Duration,
}

/// The oracle could not read what it judges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaFailure {
    /// The client could not be made.
    #[error("the client's configuration is not accepted")]
    Client(#[source] KafkaError),
    /// The cluster does not know the topic, or did not answer.
    #[error("the partitions of topic `{topic}` could not be looked up")]
    Partitions {
        /// The topic.
        topic: Arc<str>,
        /// Why, if the client says so.
        source: Option<KafkaError>,
    },
    /// The ends of a partition were not answered.
    #[error("the ends of {partition} could not be looked up")]
    Ends {
        /// The partition.
        partition: Partition,
        /// Why.
        source: KafkaError,
    },
    /// Reading failed.
    #[error("topic `{topic}` could not be read")]
    Read {
        /// The topic.
        topic: Arc<str>,
        /// Why.
        source: KafkaError,
    },
    /// The end was not reached in time.
    #[error("topic `{topic}` was not read to its end within {} s", deadline.as_secs())]
    Deadline {
        /// The topic.
        topic: Arc<str>,
        /// The time that was given.
        deadline: Duration,
    },
    /// The committed offsets were not answered.
    #[error("the committed offsets of group `{group}` could not be read")]
    Committed {
        /// The group.
        group: String,
        /// Why.
        source: KafkaError,
    },
    /// The thread that reads has ended.
    #[error("the reading thread has ended")]
    Ended,
}

// The client wants a group's name for any consumer. This one is never used.
const NO_GROUP: &str = "tidegate-oracle";

// ===== impl Kafka =====

impl Kafka {
    /// Names a cluster by one or more of its brokers, `host:port`, separated
    /// by commas.
    #[must_use]
    pub fn new(bootstrap: impl Into<String>) -> Self {
        let properties = vec![("bootstrap.servers".to_owned(), bootstrap.into())];
        Self { properties, deadline: Duration::from_secs(60) }
    }

    /// Sets a property of the client: for TLS, SASL and the like.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Sets how long one reading may take; a minute by default.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Reads topics from their starts to their ends.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer, or does not know a topic.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing. A reading that was begun goes on in
    /// its thread until it is done, or its deadline.
    pub async fn log(
        &self,
        topics: impl IntoIterator<Item = impl Into<Arc<str>>>,
        meaning: impl Fn(&RawRecord) -> Meaning + Send + 'static,
    ) -> Result<Log, KafkaFailure> {
        let topics: Vec<Arc<str>> = topics.into_iter().map(Into::into).collect();
        let kafka = self.clone();
        run(move || {
            let (records, bounds) = topic::read(&kafka, &topics)?;
            Ok(Log::new(records, meaning).with_bounds(bounds))
        })
        .await
    }

    /// Reads a group's committed offsets once.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer, or does not know a topic.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn committed(
        &self,
        group: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Result<Vec<Committed>, KafkaFailure> {
        let topics: Vec<Arc<str>> = topics.into_iter().map(Into::into).collect();
        let (kafka, group) = (self.clone(), group.into());
        run(move || watch::once(&kafka, &group, &topics)).await
    }

    /// Watches a group's committed offsets from now on.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer, or does not know a topic.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a watch that was begun ends by itself.
    pub async fn watch(
        &self,
        group: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<Arc<str>>>,
        every: Duration,
    ) -> Result<GroupWatch, KafkaFailure> {
        let topics: Vec<Arc<str>> = topics.into_iter().map(Into::into).collect();
        let (kafka, group) = (self.clone(), group.into());
        run(move || GroupWatch::start(&kafka, group, &topics, every)).await
    }

    fn consumer(&self, group: &str, more: &[(&str, &str)]) -> Result<BaseConsumer, KafkaFailure> {
        let mut config = ClientConfig::new();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "error")
            // An outage ends when it ends, not ten seconds later.
            .set("reconnect.backoff.max.ms", "500");
        let more = more.iter().map(|(name, value)| (*name, *value));
        let own = self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in more.chain(own) {
            config.set(name, value);
        }
        config.create().map_err(KafkaFailure::Client)
    }

    fn partitions(
        &self,
        consumer: &BaseConsumer,
        topics: &[Arc<str>],
    ) -> Result<Vec<Partition>, KafkaFailure> {
        let mut partitions = Vec::new();
        for topic in topics {
            let failed = |source| KafkaFailure::Partitions { topic: Arc::clone(topic), source };
            let metadata = consumer.fetch_metadata(Some(topic), self.deadline);
            let metadata = metadata.map_err(|error| failed(Some(error)))?;
            let found = metadata.topics().iter().find(|it| it.name() == &**topic);
            let found = found.filter(|it| it.error().is_none()).ok_or_else(|| failed(None))?;
            let numbers = found.partitions().iter().map(|it| it.id());
            partitions.extend(numbers.map(|number| Partition::new(Arc::clone(topic), number)));
        }
        partitions.sort();
        Ok(partitions)
    }
}

/// Runs what blocks on a thread where it may.
async fn run<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, KafkaFailure> + Send + 'static,
) -> Result<T, KafkaFailure> {
    tokio::task::spawn_blocking(read).await.map_err(|_| KafkaFailure::Ended)?
}

fn list(at: impl IntoIterator<Item = (Partition, Offset)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (Partition { topic, partition }, offset) in at {
        list.add_partition_offset(&topic, partition, offset)
            .expect("offsets of the oracle are not negative");
    }
    list
}
