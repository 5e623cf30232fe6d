//! Records that come while programs run, and what becomes of each.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use tidegate_oracle::Rules;
use tokio::time::{Instant, sleep};

use crate::{
    bench::{Bench, Side, Store},
    job::{Job, Running, Tally},
    meter::now,
    schema::Schema,
    topic,
    transfer::Transfer,
};

/// A topic that grows, and tables.
pub(crate) struct Live<'a> {
    bench: &'a Bench,
    job: Job,
    schema: Schema,
    producer: ThreadedProducer<DefaultProducerContext>,
    /// When each record was sent, by partition and offset.
    sent: Vec<Vec<i64>>,
    written: i64,
}

/// A program that runs, and the file in which it writes what it has done.
pub(crate) struct Member {
    running: Running,
    log: PathBuf,
    pub(crate) started: i64,
}

/// That a record was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Done {
    /// In microseconds since the Unix epoch.
    pub(crate) at: i64,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

const PATIENCE: Duration = Duration::from_secs(60);

// ===== impl Live =====

impl<'a> Live<'a> {
    /// Makes an empty topic, tables, and a group for a side.
    pub(crate) async fn begin(bench: &'a Bench, side: &Side) -> Result<Self> {
        let schema = bench.schema(Store::Postgres).await?;
        let mut job = bench.job(side, schema.url().to_owned());
        job.topic = bench.name("live");
        job.records = u64::MAX;
        topic::create(&job.bootstrap, &job.topic, job.partitions).await?;
        if side.program.is_by_hand() {
            schema.enter(&job.topic, job.partitions).await?;
        }
        let producer = topic::producer(&job.bootstrap).set("linger.ms", "0").create()?;
        let sent = vec![Vec::new(); usize::try_from(job.partitions)?];
        Ok(Self { bench, job, schema, producer, sent, written: 0 })
    }

    /// Sets how often its members have a heartbeat under the consumer protocol.
    pub(crate) async fn set_heartbeat(&self, interval: Duration) -> Result<()> {
        topic::set_heartbeat(&self.job.bootstrap, &self.job.group, interval).await
    }

    /// What each program is told.
    pub(crate) fn job_mut(&mut self) -> &mut Job {
        &mut self.job
    }

    /// Starts a program.
    pub(crate) fn start(&self) -> Result<Member> {
        let log = self.bench.file(&self.bench.name("log"));
        let started = now();
        let job = Job { log: Some(log.clone()), ..self.job.clone() };
        let running = job.start(&self.bench.command(job.program)?)?;
        Ok(Member { running, log, started })
    }

    /// Writes a record, each partition's to an account of its own.
    pub(crate) fn send(&mut self, partition: i32) -> Result<()> {
        let sent = &mut self.sent[usize::try_from(partition)?];
        let revision = i64::try_from(sent.len())? + 1;
        self.written += 1;
        let id = self.written.cast_unsigned();
        let account = format!("account-{partition}");
        let transfer = Transfer { id, account, revision, amount: 1 };
        let text = serde_json::to_string(&transfer)?;
        let record = BaseRecord::to(&self.job.topic).partition(partition);
        sent.push(now());
        let record = record.key(&transfer.account).payload(&text);
        self.producer.send(record).map_err(|(error, _)| error).context("writing a record")
    }

    /// How long each record took from when it was sent until it was done, in
    /// microseconds.
    pub(crate) fn latencies(&self, done: &[Done]) -> Vec<(Done, f64)> {
        let latency = |it: &Done| {
            let partition = usize::try_from(it.partition).ok()?;
            let sent = self.sent.get(partition)?.get(usize::try_from(it.offset).ok()?)?;
            Some((*it, (it.at - sent) as f64))
        };
        done.iter().filter_map(latency).collect()
    }

    /// Waits until the table of effects has so many rows.
    pub(crate) async fn applied(&self, count: i64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.schema.count("SELECT count(*) FROM entry").await? < count {
            if Instant::now() > deadline {
                bail!("{count} records do not get done");
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// How many records there are.
    pub(crate) fn written(&self) -> i64 {
        self.written
    }

    /// Looks whether all was done right, and removes the tables.
    pub(crate) async fn end(self, rules: Rules) -> Result<()> {
        self.producer.flush(PATIENCE)?;
        self.bench.judge(&self.job, &self.schema, rules, None).await?;
        self.schema.drop().await?;
        topic::delete(&self.job.bootstrap, &[&self.job.topic]).await
    }
}

// ===== impl Member =====

impl Member {
    /// Tells it to end, and returns what it did.
    pub(crate) async fn end(self) -> Result<(Tally, Vec<Done>)> {
        let tally = self.running.end().await?;
        let done = read(&self.log)?;
        ensure!(done.len() as u64 == tally.records, "a log is not whole");
        Ok((tally, done))
    }
}

fn read(log: &Path) -> Result<Vec<Done>> {
    let text = fs::read_to_string(log)?;
    let done = |line: &str| {
        let mut words = line.split(' ');
        let mut next = || words.next().context("a line is too short");
        let (at, partition, offset) = (next()?.parse()?, next()?.parse()?, next()?.parse()?);
        Ok(Done { at, partition, offset })
    };
    text.lines().map(done).collect()
}
