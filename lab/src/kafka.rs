//! What an experiment does to topics and groups.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::{KafkaResult, RDKafkaErrorCode as Code},
    topic_partition_list::{Offset, TopicPartitionList},
};
use tidegate_testkit::NewRecord;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

/// A cluster, as its administrator sees it.
pub(crate) struct Cluster {
    bootstrap: String,
    copies: i32,
    admin: AdminClient<DefaultClientContext>,
}

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

// ===== impl Cluster =====

impl Cluster {
    /// Topics are kept in so many copies.
    pub(crate) fn new(bootstrap: &str, copies: i32) -> Result<Self> {
        let admin = administrator(bootstrap).context("making an administrator")?;
        Ok(Self { bootstrap: bootstrap.to_owned(), copies, admin })
    }

    /// Makes a topic, and waits until the broker knows it.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(self.copies));
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

    /// Removes the records of a partition below an offset.
    pub(crate) async fn remove_records(&self, topic: &str, partition: i32, to: i64) -> Result<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(to))?;
        let removed = self.admin.delete_records(&list, &options()).await?;
        let element = removed.find_partition(topic, partition).context("nothing was removed")?;
        element.error().with_context(|| format!("removing the records of {topic}-{partition}"))
    }

    /// Commits an offset for a group without members, whatever it is.
    pub(crate) async fn commit(
        &self,
        group: &str,
        topic: &str,
        number: i32,
        to: i64,
    ) -> Result<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, number, Offset::Offset(to))?;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("group.id", group);
        spawn_blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            consumer.commit(&list, CommitMode::Sync).context("committing an offset")
        })
        .await?
    }

    /// The node that coordinates a group, once one does.
    pub(crate) fn coordinator(&self, group: &str) -> Option<i32> {
        // As Java hashes a string, and as Kafka makes it positive.
        let hash = group
            .encode_utf16()
            .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
        self.leader("__consumer_offsets", |partitions| (hash & i32::MAX) % partitions)
    }

    /// The node that leads a partition, once one does. Which one it is may depend
    /// on how many there are.
    pub(crate) fn leader(&self, topic: &str, number: impl Fn(i32) -> i32) -> Option<i32> {
        const SOON: Duration = Duration::from_secs(2);

        // One that has known a node before it was frozen goes on asking it.
        let anew = administrator(&self.bootstrap).ok()?;
        let metadata = anew.inner().fetch_metadata(Some(topic), SOON).ok()?;
        let partitions = metadata.topics().first()?.partitions();
        let number = number(i32::try_from(partitions.len()).ok().filter(|it| *it > 0)?);
        let partition = partitions.iter().find(|it| it.id() == number)?;
        Some(partition.leader()).filter(|leader| *leader >= 0)
    }

    /// Where each partition ends.
    pub(crate) async fn ends(&self, topic: &str, partitions: i32) -> Result<BTreeMap<i32, i64>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ends = (0..partitions).map(|partition| {
                let marks = self.admin.inner().fetch_watermarks(topic, partition, PATIENCE)?;
                Ok((partition, marks.1))
            });
            match ends.collect::<KafkaResult<_>>() {
                // A leader has just moved.
                Err(error)
                    if error.rdkafka_error_code() == Some(Code::NotLeaderForPartition)
                        && Instant::now() < deadline =>
                {
                    sleep(PAUSE).await;
                }
                ends => return Ok(ends?),
            }
        }
    }

    /// Whether the cluster says that there is no such topic.
    pub(crate) fn lacks(&self, topic: &str) -> bool {
        let metadata = self.admin.inner().fetch_metadata(Some(topic), PATIENCE);
        let unknown = Some(Code::UnknownTopicOrPartition);
        metadata.is_ok_and(|it| it.topics().iter().all(|it| it.error().map(Code::from) == unknown))
    }

    fn partitions(&self, topic: &str) -> Option<usize> {
        let metadata = self.admin.inner().fetch_metadata(Some(topic), PATIENCE).ok()?;
        let topic = metadata.topics().iter().find(|it| it.name() == topic)?;
        let ready = topic.partitions().iter().all(|it| it.leader() >= 0);
        ready.then(|| topic.partitions().len())
    }
}

fn administrator(bootstrap: &str) -> KafkaResult<AdminClient<DefaultClientContext>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("reconnect.backoff.max.ms", "500").create()
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
