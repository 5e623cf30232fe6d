use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
};
use tokio::task::spawn_blocking;

use crate::{KafkaConfig, KafkaSource, ffi};

/// The brokers cannot be used as they are configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// No broker answers.
    #[error("no Kafka broker answers at {bootstrap}: {reason}")]
    #[non_exhaustive]
    Unreachable {
        /// The addresses.
        bootstrap: String,
        /// What the client says.
        reason: String,
    },
    /// There is no such topic, or it may not be seen.
    #[error("there is no topic `{topic}` at {bootstrap}: {reason}")]
    #[non_exhaustive]
    NoTopic {
        /// The topic.
        topic: String,
        /// The addresses.
        bootstrap: String,
        /// What the broker says.
        reason: String,
    },
}

/// Remembers the last error, which says more than that time has run out.
#[derive(Default)]
struct Errors {
    last: Mutex<Option<String>>,
}

impl KafkaSource {
    /// Checks that a broker answers, and that the topics are there: for a
    /// program that would rather say so at its start than wait.
    ///
    /// Names that are regular expressions are not checked.
    ///
    /// # Errors
    ///
    /// When no broker answers within `patience`, or a topic is not there.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn check(&self, patience: Duration) -> Result<(), Unavailable> {
        let (config, topics) = (self.config().clone(), self.topics().to_vec());
        let checked = spawn_blocking(move || check(&config, &topics, patience)).await;
        checked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

fn check(config: &KafkaConfig, topics: &[String], patience: Duration) -> Result<(), Unavailable> {
    let bootstrap = config.bootstrap().to_owned();
    let unreachable = |reason| Unavailable::Unreachable { bootstrap: bootstrap.clone(), reason };
    let errors = Arc::new(Errors::default());
    let consumer: BaseConsumer<Shared> = config
        .plain_client()
        .create_with_context(Shared(Arc::clone(&errors)))
        .map_err(|error| unreachable(error.to_string()))?;
    ffi::ask_once(consumer, |consumer| {
        for topic in topics.iter().filter(|topic| !topic.starts_with('^')) {
            let metadata = consumer.fetch_metadata(Some(topic), patience).map_err(|error| {
                // Errors come through the queue, which holds a few.
                while consumer.poll(Duration::ZERO).is_some() {}
                unreachable(errors.last().unwrap_or_else(|| error.to_string()))
            })?;
            let found = metadata.topics().iter().find(|it| it.name() == topic);
            let missing = |reason: String| Unavailable::NoTopic {
                topic: topic.clone(),
                bootstrap: bootstrap.clone(),
                reason,
            };
            match found {
                Some(found) => {
                    if let Some(error) = found.error() {
                        return Err(missing(RDKafkaErrorCode::from(error).to_string()));
                    }
                }
                None => return Err(missing("the broker does not know it".to_owned())),
            }
        }
        Ok(())
    })
}

struct Shared(Arc<Errors>);

impl Errors {
    fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Shared {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", ?level, facility, "{message}");
        if matches!(level, RDKafkaLogLevel::Error) {
            *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_owned());
        }
    }

    fn error(&self, _: KafkaError, whole: &str) {
        // Without the thread that it came from.
        let reason = whole.strip_prefix("[thrd:").and_then(|it| it.split_once("]: "));
        let reason = reason.map_or(whole, |(_, reason)| reason);
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl ConsumerContext for Shared {}
