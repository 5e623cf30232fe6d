//! What an experiment does to topics and groups.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    error::RDKafkaErrorCode as Code,
};
use tidegate_testkit::NewRecord;
use tokio::time::{Instant, sleep};

/// A cluster, as its administrator sees it.
pub(crate) struct Cluster {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
}

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

// ===== impl Cluster =====

impl Cluster {
    pub(crate) fn new(bootstrap: &str) -> Result<Self> {
        let admin = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("reconnect.backoff.max.ms", "500")
            .create()
            .context("making an administrator")?;
        Ok(Self { bootstrap: bootstrap.to_owned(), admin })
    }

    /// Makes a topic, and waits until the broker knows it.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let results = self.admin.create_topics([&topic], &options()).await?;
        check(results).with_context(|| format!("creating topic {name}"))?;
        let deadline = Instant::now() + PATIENCE;
        while self.partitions(name) != usize::try_from(partitions).ok() {
            if Instant::now() > deadline {
                bail!("topic {name} does not appear");
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    pub(crate) async fn delete_topic(&self, name: &str) -> Result<()> {
        check(self.admin.delete_topics(&[name], &options()).await?)
            .with_context(|| format!("deleting topic {name}"))
    }

    /// Deletes a group, if it is there, once its members are gone.
    pub(crate) async fn delete_group(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let results = self.admin.delete_groups(&[name], &options()).await?;
            match results.into_iter().next() {
                // One that was killed stays a member until its session ends.
                Some(Err((_, Code::NonEmptyGroup))) if Instant::now() < deadline => {
                    sleep(PAUSE * 4).await;
                }
                Some(Err((_, code))) if code != Code::GroupIdNotFound => {
                    bail!("deleting group {name}: {code}")
                }
                _ => return Ok(()),
            }
        }
    }

    /// Writes records, and waits until all are written.
    pub(crate) async fn write(&self, topic: &str, records: Vec<NewRecord>) -> Result<()> {
        let cluster = tidegate_testkit::Cluster::at(&self.bootstrap);
        Ok(cluster.produce(topic, records).await?)
    }

    fn partitions(&self, topic: &str) -> Option<usize> {
        let metadata = self.admin.inner().fetch_metadata(Some(topic), PATIENCE).ok()?;
        let topic = metadata.topics().iter().find(|it| it.name() == topic)?;
        let ready = topic.partitions().iter().all(|it| it.leader() >= 0);
        ready.then(|| topic.partitions().len())
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE))
}

fn check(results: Vec<Result<String, (String, Code)>>) -> Result<()> {
    for result in results {
        if let Err((name, code)) = result {
            bail!("{name}: {code}");
        }
    }
    Ok(())
}
