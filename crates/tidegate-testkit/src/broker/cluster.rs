use std::time::Duration;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use tokio::task::spawn_blocking;

use super::{BrokerFailure, ErrorCode, NewRecord, produce};

/// A Kafka that is there: what a test or a demonstration does to it.
///
/// ```no_run
/// use tidegate_testkit::{Cluster, NewRecord};
///
/// # async fn fill() -> Result<(), tidegate_testkit::BrokerFailure> {
/// let cluster = Cluster::at("127.0.0.1:9092");
/// if cluster.create_topic("transfers", 8).await? {
///     cluster.produce("transfers", vec![NewRecord::new(0, "payload")]).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cluster {
    bootstrap: String,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Cluster {
    /// The cluster that is found by these addresses.
    #[must_use]
    pub fn at(bootstrap: impl Into<String>) -> Self {
        Self { bootstrap: bootstrap.into() }
    }

    /// Makes a topic, with one copy of it. Returns whether it was not there
    /// before.
    ///
    /// # Errors
    ///
    /// When no broker answers, or it refuses.
    pub async fn create_topic(&self, topic: &str, partitions: i32) -> Result<bool, BrokerFailure> {
        let failed = |source| BrokerFailure::Client { what: "make a topic", source };
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .create()
            .map_err(failed)?;
        let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let options = AdminOptions::new().request_timeout(Some(PATIENCE));
        let made = admin.create_topics([&topic], &options).await.map_err(failed)?;
        match made.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, ErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(BrokerFailure::Refused { what: "make a topic", code }),
            None => Err(BrokerFailure::Refused { what: "make a topic", code: ErrorCode::Fail }),
        }
    }

    /// Writes records, each to the partition that it names, and returns when all
    /// are written.
    ///
    /// # Errors
    ///
    /// When one is not written.
    ///
    /// # Panics
    ///
    /// When it is called outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it does not stop the writing.
    pub async fn produce(&self, topic: &str, records: Vec<NewRecord>) -> Result<(), BrokerFailure> {
        let (bootstrap, topic) = (self.bootstrap.clone(), topic.to_owned());
        let written = spawn_blocking(move || produce::produce(&bootstrap, &topic, records)).await;
        written.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}
