use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use rdkafka::{
    ClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, ProducerContext, ThreadedProducer},
};
use tidegate_core::{Class, DeadLetters, Error, Lease, Record, TopicPartition};
use tokio::sync::oneshot;

use crate::{ConfigError, KafkaConfig};

/// A Kafka topic of dead letters.
///
/// A letter's key is `topic/partition/offset`, so that in a compacted topic a
/// record that is buried twice is there once. Its payload and headers are the
/// record's own; what else there is to know is in headers:
///
/// | header | value |
/// | --- | --- |
/// | `tidegate-topic`, `tidegate-partition`, `tidegate-offset` | where the record was read |
/// | `tidegate-timestamp` | its timestamp, in milliseconds |
/// | `tidegate-key` | its key; not there if it has none |
/// | `tidegate-tombstone` | `true` for a record without a payload, whose letter has an empty one |
/// | `tidegate-class`, `tidegate-cause` | why it could not be applied |
///
/// A letter counts as stored when all in-sync replicas have it.
///
/// # What it cannot do
///
/// It cannot tell which records are buried. So a record that was buried and
/// is read again, after a crash or a rewind, is tried again, and buried again.
/// Where a sequencer parked the successors of a buried delta, and somebody has
/// since let them pass, that second try may apply the delta after them: keep
/// the table store for sequenced topics.
#[derive(Clone)]
pub struct DeadLetterTopic {
    producer: Arc<ThreadedProducer<Deliveries>>,
    topic: Arc<str>,
}

/// A dead letter was not stored.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the dead letter was not stored in `{topic}`: {reason}")]
#[non_exhaustive]
pub struct NotBuried {
    /// The topic of dead letters.
    pub topic: Arc<str>,
    /// What the client says.
    pub reason: String,
}

/// Takes the results of deliveries.
struct Deliveries;

type Delivered = oneshot::Sender<Option<KafkaError>>;

// ===== impl DeadLetterTopic =====

impl DeadLetterTopic {
    /// Creates a store that writes to `topic`, with the connection of `config`,
    /// and tries for 30 s to store a letter.
    ///
    /// The topic has to be there.
    ///
    /// # Errors
    ///
    /// When the client refuses the configuration.
    pub fn new(config: &KafkaConfig, topic: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        Self::with_timeout(config, topic, Duration::from_secs(30))
    }

    /// The same, and tries for `timeout` before it says that a letter is not
    /// stored.
    ///
    /// # Errors
    ///
    /// When the client refuses the configuration.
    pub fn with_timeout(
        config: &KafkaConfig,
        topic: impl Into<Arc<str>>,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let producer = config
            .plain_client()
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            // The topic is there; the client's 30 s would hide that it is not.
            .set("topic.metadata.propagation.max.ms", "5000")
            .set("message.timeout.ms", timeout.as_millis().to_string())
            .create_with_context(Deliveries)
            .map_err(|error| ConfigError::Refused { reason: error.to_string() })?;
        Ok(Self { producer: Arc::new(producer), topic: topic.into() })
    }

    fn failed(&self, error: &KafkaError) -> Error {
        let class = match error.rdkafka_error_code() {
            Some(
                Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::MessageSizeTooLarge
                | Code::InvalidRecord
                | Code::Fatal,
            ) => Class::Fatal,
            _ => Class::Transient,
        };
        Error::new(class, NotBuried { topic: Arc::clone(&self.topic), reason: error.to_string() })
    }
}

impl DeadLetters for DeadLetterTopic {
    /// # Cancel safety
    ///
    /// Dropping it does not recall the letter, which may be stored or not.
    async fn bury(&self, _: &Lease, record: &Record, cause: &Error) -> Result<(), Error> {
        let key = key(record);
        let (sender, delivered) = oneshot::channel();
        let letter = BaseRecord::with_opaque_to(&self.topic, Box::new(sender))
            .key(&key)
            .payload(record.payload.as_deref().unwrap_or_default())
            .headers(headers(record, cause));
        self.producer.send(letter).map_err(|(error, _)| self.failed(&error))?;
        match delivered.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(self.failed(&error)),
            Err(_) => Err(self.failed(&KafkaError::Canceled)),
        }
    }

    async fn buried(&self, _: &TopicPartition, _: i64) -> Result<BTreeSet<i64>, Error> {
        Ok(BTreeSet::new())
    }
}

impl fmt::Debug for DeadLetterTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}

// ===== impl Deliveries =====

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "the client of the dead letters reports an error");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Delivered>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivered: Box<Delivered>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        // Nobody may be waiting any more.
        let _ = delivered.send(error);
    }
}

fn key(record: &Record) -> String {
    let TopicPartition { topic, partition } = &record.partition;
    format!("{topic}/{partition}/{}", record.offset)
}

fn headers(record: &Record, cause: &Error) -> OwnedHeaders {
    let TopicPartition { topic, partition } = &record.partition;
    let mut headers = OwnedHeaders::new();
    for header in &record.headers {
        headers = headers.insert(Header { key: &header.name, value: header.value.as_deref() });
    }
    let texts = [
        ("tidegate-topic", topic.to_string()),
        ("tidegate-partition", partition.to_string()),
        ("tidegate-offset", record.offset.to_string()),
        ("tidegate-timestamp", record.timestamp.to_string()),
        ("tidegate-class", cause.class().to_string()),
        ("tidegate-cause", cause.chain()),
    ];
    for (key, value) in &texts {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    if let Some(value) = record.key.as_deref() {
        headers = headers.insert(Header { key: "tidegate-key", value: Some(value) });
    }
    if record.payload.is_none() {
        headers = headers.insert(Header { key: "tidegate-tombstone", value: Some("true") });
    }
    headers
}

#[cfg(test)]
mod tests {
    use rdkafka::message::Headers as _;
    use tidegate_core::{Class, Error, Header, Record, TopicPartition};

    use super::{headers, key};

    #[test]
    fn a_letter_says_where_the_record_was_read_and_why_it_is_buried() {
        let record = Record::new(TopicPartition::new("transfers", 3), 7, "x")
            .with_key("k")
            .with_headers([Header::new("trace", "t")]);
        let tombstone = Record { payload: None, ..record };
        assert_eq!(key(&tombstone), "transfers/3/7");
        let headers = headers(&tombstone, &Error::new(Class::Poison, "no such account"));
        let value = |name| {
            let header = headers.iter().find(|header| header.key == name)?;
            Some(String::from_utf8_lossy(header.value?).into_owned())
        };
        assert_eq!(value("trace").as_deref(), Some("t"));
        assert_eq!(value("tidegate-offset").as_deref(), Some("7"));
        assert_eq!(value("tidegate-key").as_deref(), Some("k"));
        assert_eq!(value("tidegate-tombstone").as_deref(), Some("true"));
        let cause = "a record can never be applied: no such account";
        assert_eq!(value("tidegate-cause").as_deref(), Some(cause));
    }
}
