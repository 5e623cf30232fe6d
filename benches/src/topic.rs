//! Topics of transfers, written once and read by all programs of a row.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::{
    ClientConfig,
    admin::{
        AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
    },
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::transfer::Transfer;

/// What a topic holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub(crate) partitions: i32,
    pub(crate) records: u64,
    /// The bytes of a payload; fewer are not filled up.
    pub(crate) size: usize,
    pub(crate) accounts: u64,
    /// Ids that do not grow.
    pub(crate) random_ids: bool,
}

/// Ids begin here, so that there are some before them.
const FIRST_ID: u64 = 1 << 40;

const PATIENCE: Duration = Duration::from_secs(60);

// ===== impl Topic =====

impl Topic {
    pub(crate) const fn new(partitions: i32, records: u64) -> Self {
        Self { partitions, records, size: 100, accounts: 10_000, random_ids: false }
    }

    pub(crate) fn name(&self) -> String {
        let Self { partitions, records, size, accounts, random_ids } = self;
        let ids = if *random_ids { "-random" } else { "" };
        format!("bench-{partitions}-{records}-{size}-{accounts}{ids}")
    }

    /// The sum of all revisions.
    pub(crate) fn revisions(&self) -> i64 {
        let mut revisions = vec![0; self.accounts as usize];
        (0..self.records).map(|number| next(&mut revisions, number).1).sum()
    }

    /// Makes the topic, and fills it.
    pub(crate) async fn make(self, bootstrap: &str) -> Result<()> {
        create(bootstrap, &self.name(), self.partitions).await?;
        let config = producer(bootstrap);
        spawn_blocking(move || self.fill(&config)).await?
    }

    fn fill(&self, config: &ClientConfig) -> Result<()> {
        let producer: ThreadedProducer<DefaultProducerContext> = config.create()?;
        let name = self.name();
        let mut revisions = vec![0; self.accounts as usize];
        for number in 0..self.records {
            let (account, revision) = next(&mut revisions, number);
            let payload = self.payload(number, account, revision);
            let key = payload.account.as_bytes();
            let text = self.text(&payload)?;
            let partition = i32::try_from(account % u64::from(self.partitions.cast_unsigned()))?;
            let mut record = BaseRecord::to(&name).key(key).payload(&text).partition(partition);
            while let Err((error, back)) = producer.send(record) {
                if !matches!(error, KafkaError::MessageProduction(Code::QueueFull)) {
                    return Err(error).context("writing a record");
                }
                producer.poll(Duration::from_millis(10));
                record = back;
            }
        }
        producer.flush(PATIENCE).context("writing the last records")
    }

    fn payload(&self, number: u64, account: u64, revision: i64) -> Transfer {
        let id = if self.random_ids { mixed(number) >> 1 } else { FIRST_ID + number };
        Transfer { id, account: format!("account-{account:05}"), revision, amount: revision }
    }

    /// JSON, with a note in it that nobody reads, up to the wanted size.
    fn text(&self, transfer: &Transfer) -> Result<String> {
        let mut text = serde_json::to_string(transfer)?;
        if text.len() + 11 < self.size {
            text.pop();
            let note = self.size - text.len() - 11;
            text.push_str(&format!(r#","note":"{}"}}"#, "x".repeat(note)));
        }
        Ok(text)
    }
}

/// The account of a record, and its revision there.
fn next(revisions: &mut [i64], number: u64) -> (u64, i64) {
    let account = mixed(number) % revisions.len() as u64;
    let revision = &mut revisions[account as usize];
    *revision += 1;
    (account, *revision)
}

/// A number that looks like chance: the output function of `SplitMix64` (Steele,
/// Lea and Flood, 2014). No two numbers have the same.
fn mixed(number: u64) -> u64 {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

pub(crate) fn producer(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("linger.ms", "5");
    // Without it, a batch that is sent again comes behind the next one.
    config.set("enable.idempotence", "true");
    config
}

fn admin(bootstrap: &str) -> Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", bootstrap).create()?)
}

/// Makes a topic, and waits until the broker knows it.
pub(crate) async fn create(bootstrap: &str, name: &str, partitions: i32) -> Result<()> {
    let admin = admin(bootstrap)?;
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    for result in admin.create_topics([&topic], &options).await? {
        if let Err((name, code)) = result {
            bail!("creating topic {name}: {code}");
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while !is_there(&admin, name, partitions) {
        if Instant::now() > deadline {
            bail!("topic {name} does not appear");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn is_there(admin: &AdminClient<DefaultClientContext>, name: &str, partitions: i32) -> bool {
    let Ok(metadata) = admin.inner().fetch_metadata(Some(name), PATIENCE) else { return false };
    let topic = metadata.topics().iter().find(|topic| topic.name() == name);
    topic.is_some_and(|topic| {
        let led = topic.partitions().iter().filter(|it| it.leader() >= 0).count();
        usize::try_from(partitions) == Ok(led)
    })
}

/// Sets how often the members of a group have a heartbeat under the consumer
/// protocol.
pub(crate) async fn set_heartbeat(bootstrap: &str, group: &str, interval: Duration) -> Result<()> {
    let admin = admin(bootstrap)?;
    let millis = interval.as_millis().to_string();
    let config = AlterConfig::new(ResourceSpecifier::Group(group))
        .set("consumer.heartbeat.interval.ms", &millis);
    for result in admin.alter_configs([&config], &AdminOptions::new()).await? {
        if let Err((_, code)) = result {
            bail!("setting the heartbeat interval of group {group}: {code}");
        }
    }
    Ok(())
}

/// Deletes topics.
pub(crate) async fn delete(bootstrap: &str, names: &[&str]) -> Result<()> {
    let admin = admin(bootstrap)?;
    for result in admin.delete_topics(names, &AdminOptions::new()).await? {
        if let Err((name, code)) = result {
            bail!("deleting topic {name}: {code}");
        }
    }
    Ok(())
}
