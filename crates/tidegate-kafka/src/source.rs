use std::fmt;

use tidegate_core::{Delivery, Error, IsRecorded};
use tower_service::Service;

use crate::{
    Assignment, ConfigError, KafkaConfig, Serve, Status, config::Settings, status::Publisher,
};

/// A member of a consumer group, which serves the partitions that it is given.
///
/// See the [crate docs](crate) for an example.
pub struct KafkaSource {
    config: KafkaConfig,
    settings: Settings,
    topics: Vec<String>,
    publisher: Publisher,
    status: Status,
}

impl KafkaSource {
    /// Creates a source. Nothing is connected before it is served.
    ///
    /// # Errors
    ///
    /// When the configuration breaks a guarantee, or the client refuses it.
    pub fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        let settings = config.settings()?;
        let (publisher, status) = Status::new();
        Ok(Self { config, settings, topics: Vec::new(), publisher, status })
    }

    /// Subscribes to topics, beside those of earlier calls.
    ///
    /// A name that begins with `^` is a regular expression: of librdkafka in the
    /// classic protocols, of the broker under the consumer protocol. A topic
    /// that does not exist yet is waited for.
    ///
    /// # Panics
    ///
    /// When a name holds a null byte.
    #[must_use]
    pub fn subscribe<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics.extend(topics.into_iter().map(Into::into));
        assert!(
            self.topics.iter().all(|it| !it.contains('\0')),
            "topics have no null in their names"
        );
        self
    }

    pub(crate) fn config(&self) -> &KafkaConfig {
        &self.config
    }

    pub(crate) fn topics(&self) -> &[String] {
        &self.topics
    }

    /// A handle on how the source stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Serves each assignment with a stack of its own, which `make_service`
    /// builds.
    ///
    /// The stack is owned by the assignment's task, and dropped with it. It need
    /// not be `Clone`, nor `Sync`.
    pub fn serve<M, S>(self, make_service: M) -> Serve<M>
    where
        M: FnMut(Assignment) -> S,
        S: Service<Delivery, Response: IsRecorded, Error: Into<Error>>,
    {
        let Self { config, settings, topics, publisher, .. } = self;
        Serve::new(config, settings, topics, publisher, make_service)
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource")
            .field("config", &self.config)
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}
