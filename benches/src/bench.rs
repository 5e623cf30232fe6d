//! What rows have in common: the services, topics, and runs in turn.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tidegate_oracle::{Evidence, Kafka, Log, Queries, Rules, Tables, Verdict, judge, ledger};
use tokio::sync::Mutex;

use crate::{
    job::{Job, Tally},
    measure::Series,
    peers::Peers,
    programs::Program,
    progress::Progress,
    schema::{BALANCES, Schema},
    services::Services,
    topic::{self, Topic},
};

/// What rows are run with.
pub(crate) struct Bench {
    pub(crate) services: Services,
    /// Little of everything, to see that it works.
    pub(crate) quick: bool,
    pub(crate) progress: Progress,
    pub(crate) peers: Peers,
    rounds: usize,
    /// For files of the runs.
    folder: TempDir,
    topics: Mutex<HashMap<Topic, Option<Log>>>,
    count: AtomicU64,
}

/// A program, and what it is to do.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) program: Program,
    pub(crate) topic: Topic,
    pub(crate) store: Store,
    pub(crate) batch: usize,
    pub(crate) lanes: usize,
    pub(crate) properties: &'static [(&'static str, &'static str)],
    /// The database as the program is to reach it, if not directly.
    pub(crate) through: Option<std::net::SocketAddr>,
}

// ===== impl Bench =====

impl Bench {
    pub(crate) fn new(
        services: Services,
        quick: bool,
        rounds: usize,
        progress: Progress,
        target: &std::path::Path,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(target)?;
        let topics = Mutex::default();
        let (peers, count) = (Peers::default(), AtomicU64::new(1));
        Ok(Self { services, quick, progress, peers, rounds, folder, topics, count })
    }

    /// How a program is started.
    pub(crate) fn command(&self, program: Program) -> Result<Vec<String>> {
        if program.is_go() || program.is_java() {
            return self.peers.command(program).context("this peer was not built");
        }
        let ours = std::env::current_exe()?;
        Ok(vec![ours.display().to_string(), "program".to_owned()])
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// One number, or a smaller one for `--quick`.
    pub(crate) fn scaled<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A name that no other run has.
    pub(crate) fn name(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", std::process::id(), self.count.fetch_add(1, Relaxed))
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a topic, unless it is there.
    pub(crate) async fn topic(&self, topic: Topic) -> Result<()> {
        let mut topics = self.topics.lock().await;
        if let Entry::Vacant(entry) = topics.entry(topic) {
            self.progress.phase("writing a topic");
            topic.make(&self.services.bootstrap).await?;
            entry.insert(None);
        }
        Ok(())
    }

    /// Deletes a large topic.
    pub(crate) async fn forget(&self, topic: Topic) -> Result<()> {
        if self.topics.lock().await.remove(&topic).is_some() {
            topic::delete(&self.services.bootstrap, &[&topic.name()]).await?;
        }
        Ok(())
    }

    /// Runs programs in turn, so many rounds. Returns the figures, and the last
    /// tally.
    pub(crate) async fn rounds_of<const N: usize>(
        &self,
        sides: &[Side; N],
        of: impl Fn(&Tally) -> f64,
    ) -> Result<([Series; N], [Tally; N])> {
        let (series, tallies): (Vec<_>, Vec<_>) =
            self.in_turn(sides, of).await?.into_iter().unzip();
        let series = series.try_into().expect("there is one for each side");
        Ok((series, tallies.try_into().expect("there is one for each side")))
    }

    /// The same, for any number of programs.
    pub(crate) async fn in_turn(
        &self,
        sides: &[Side],
        of: impl Fn(&Tally) -> f64,
    ) -> Result<Vec<(Series, Tally)>> {
        let mut measured = vec![(Vec::new(), Tally::default()); sides.len()];
        for round in 1..=self.rounds {
            for (side, (runs, last)) in sides.iter().zip(&mut measured) {
                let name = side.program.name();
                self.progress.phase(&format!("run {round} of {}: {name}", self.rounds));
                let tally = self.run(side).await.with_context(|| format!("running {name}"))?;
                runs.push(of(&tally));
                *last = tally;
            }
        }
        Ok(measured.into_iter().map(|(runs, last)| (Series::new(runs), last)).collect())
    }

    /// Runs one program with tables and a group of its own, and looks whether it
    /// did what it should.
    pub(crate) async fn run(&self, side: &Side) -> Result<Tally> {
        let Side { program, .. } = side;
        if side.store == Store::Nothing {
            self.topic(side.topic).await?;
            let job = self.job(side, String::new());
            let tally = job.run(&self.command(*program)?).await?;
            self.check_read(&job, side.topic, &tally).await?;
            return Ok(tally);
        }
        let schema = self.schema(side.store).await?;
        let tally = self.run_in(side, &schema).await;
        schema.drop().await?;
        tally
    }

    /// Makes tables.
    pub(crate) async fn schema(&self, store: Store) -> Result<Schema> {
        let name = self.name("bench");
        match store {
            Store::Sqlite => Schema::in_file(&self.file(&name)).await,
            Store::Postgres | Store::Nothing => Schema::on(&self.services.database, &name).await,
        }
    }

    /// Runs one program on these tables, with a group of its own, and lets the
    /// oracle look at topic, group and tables.
    pub(crate) async fn run_in(&self, side: &Side, schema: &Schema) -> Result<Tally> {
        let Side { program, topic, .. } = side;
        self.topic(*topic).await?;
        if program.is_by_hand() {
            schema.enter(&topic.name(), topic.partitions).await?;
        }
        let job = self.job(side, through(schema.url(), side.through)?);
        let command = self.command(*program)?;
        if program.keeps_balances() {
            schema.execute(BALANCES).await?;
            let tally = job.run(&command).await?;
            schema.check_balances(topic.records).await?;
            ensure!(self.committed(&job).await? == topic.records, "not all is committed");
            return Ok(tally);
        }
        let tally = job.run(&command).await?;
        let known = self.topics.lock().await.get_mut(topic).and_then(Option::take);
        let log = self.judge(&job, schema, Rules::default(), known).await?;
        self.topics.lock().await.insert(*topic, Some(log));
        Ok(tally)
    }

    pub(crate) fn job(&self, side: &Side, database: String) -> Job {
        let properties = side.properties.iter();
        Job {
            program: side.program,
            bootstrap: self.services.bootstrap.clone(),
            database,
            topic: side.topic.name(),
            partitions: side.topic.partitions,
            group: self.name("group"),
            records: side.topic.records,
            batch: side.batch,
            lanes: side.lanes,
            work: Duration::ZERO,
            properties: properties.map(|(name, it)| ((*name).into(), (*it).into())).collect(),
            log: None,
        }
    }

    async fn check_read(&self, job: &Job, topic: Topic, tally: &Tally) -> Result<()> {
        let (expected, found) = (topic.revisions(), tally.revisions);
        ensure!(found == expected, "the sum of the revisions is {found}, not {expected}");
        let committed = self.committed(job).await?;
        ensure!(committed == topic.records, "{committed} records are committed");
        Ok(())
    }

    /// The sum of the committed offsets of a topic without gaps.
    pub(crate) async fn committed(&self, job: &Job) -> Result<u64> {
        let kafka = Kafka::new(&job.bootstrap);
        let committed = kafka.committed(&job.group, [job.topic.as_str()]).await?;
        Ok(committed.iter().filter_map(|it| it.offset).sum::<i64>().cast_unsigned())
    }

    /// Lets the oracle look at topic, group and tables. Reading the topic takes
    /// longest, so that may have been done before.
    pub(crate) async fn judge(
        &self,
        job: &Job,
        schema: &Schema,
        rules: Rules,
        log: Option<Log>,
    ) -> Result<Log> {
        let kafka = Kafka::new(&job.bootstrap);
        let mut evidence = Evidence::default();
        evidence.log = match log {
            Some(log) => log,
            None => {
                let meaning = ledger::meaning(ledger::AMOUNT_LIMIT);
                kafka.log([job.topic.as_str()], meaning).await?
            }
        };
        evidence.committed = Some(kafka.committed(&job.group, [job.topic.as_str()]).await?);
        let mut queries = Queries::default();
        // There may be markers of messages that were there before.
        let own = |sql| format!("SELECT * FROM ({sql}) AS markers WHERE topic = '{}'", job.topic);
        queries.markers = queries.markers.map(own);
        Tables::new(schema.url(), queries).read(&mut evidence).await?;
        let findings = judge(&evidence, rules);
        ensure!(findings.verdict == Verdict::Pass, "the run was wrong:\n{findings}");
        Ok(evidence.log)
    }
}

/// Where a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Nothing,
    Postgres,
    Sqlite,
}

// ===== impl Side =====

impl Side {
    pub(crate) fn new(program: Program, topic: Topic) -> Self {
        Self {
            program,
            topic,
            store: Store::Postgres,
            batch: 1_000,
            lanes: 1,
            properties: &[],
            through: None,
        }
    }
}

/// The same database, at another address.
fn through(url: &str, address: Option<std::net::SocketAddr>) -> Result<String> {
    let Some(address) = address else { return Ok(url.to_owned()) };
    let (head, rest) = url.split_once('@').context("the URL has no user")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    Ok(format!("{head}@{address}{}", &rest[end..]))
}
