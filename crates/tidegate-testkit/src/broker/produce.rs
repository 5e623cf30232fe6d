use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
};

use super::BrokerFailure;

const PATIENCE: Duration = Duration::from_secs(60);

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewRecord {
    /// The partition that it goes to.
    pub partition: i32,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// The headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Remembers the first record that was not written.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Option<KafkaError>>,
}

pub(super) fn produce(
    bootstrap: &str,
    topic: &str,
    records: impl IntoIterator<Item = NewRecord>,
) -> Result<(), BrokerFailure> {
    let failed = |source| BrokerFailure::Client { what: "write records", source };
    let producer: BaseProducer<Deliveries> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        // One batch a partition, if they are all here by then.
        .set("linger.ms", "50")
        .create_with_context(Deliveries::default())
        .map_err(failed)?;
    for record in records {
        send(&producer, topic, &record).map_err(failed)?;
    }
    producer.flush(PATIENCE).map_err(failed)?;
    let mut first = producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner);
    first.take().map_or(Ok(()), |source| Err(failed(source)))
}

fn send(
    producer: &BaseProducer<Deliveries>,
    topic: &str,
    record: &NewRecord,
) -> Result<(), KafkaError> {
    loop {
        match producer.send(base_record(topic, record)) {
            Ok(()) => return Ok(()),
            // Its queue has a bound: wait for some to be written.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(10));
            }
            Err((error, _)) => return Err(error),
        }
    }
}

fn base_record<'a>(topic: &'a str, record: &'a NewRecord) -> BaseRecord<'a, [u8], [u8]> {
    let mut base = BaseRecord::<[u8], [u8]>::to(topic).partition(record.partition);
    base.key = record.key.as_deref();
    base.payload = record.payload.as_deref();
    if record.headers.is_empty() {
        return base;
    }
    let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(value) })
    });
    base.headers(headers)
}

// ===== impl NewRecord =====

impl NewRecord {
    /// A record with a payload and nothing else.
    #[must_use]
    pub fn new(partition: i32, payload: impl Into<Vec<u8>>) -> Self {
        Self { partition, key: None, payload: Some(payload.into()), headers: Vec::new() }
    }

    /// A tombstone of a key.
    #[must_use]
    pub fn tombstone(partition: i32, key: impl Into<Vec<u8>>) -> Self {
        Self { payload: None, ..Self::new(partition, "").with_key(key) }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

#[cfg(feature = "generator")]
impl From<&crate::LedgerRecord> for NewRecord {
    fn from(record: &crate::LedgerRecord) -> Self {
        Self::new(record.partition, record.payload.clone()).with_key(record.key.clone())
    }
}

// ===== impl Deliveries =====

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| error.clone());
        }
    }
}
