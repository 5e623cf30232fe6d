//! One run of one experiment: its topic, group and schema, its processes, and
//! what it leaves behind.

mod judging;
mod wait;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tidegate::kafka::{KafkaConfig, group::GroupAdmin};
use tidegate_oracle::{Committed, Findings, GroupWatch, Kafka as Reader, Partition, RawRecord};
use tidegate_testkit::{LedgerRecord, NewRecord, Proxy, Wire};
use tokio::{fs::File, sync::Mutex as AsyncMutex};

use crate::{
    database::{EffectAt, Schema},
    evidence::{Scale, Step, StepKind},
    kafka::Cluster,
    member::Member,
    progress::Line,
    says,
    services::{Services, ThreeNodes},
    worker::{Arguments, Logged, Protocol, Start},
};

pub(crate) use self::wait::until;

/// How often the group's committed offsets are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// One run of one experiment.
pub(crate) struct Case {
    services: Arc<Services>,
    pub(crate) protocol: Protocol,
    pub(crate) seed: u64,
    pub(crate) scale: Scale,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) cluster: Cluster,
    nodes: Option<ThreeNodes>,
    pub(crate) schema: Schema,
    directory: PathBuf,
    line: Line,
    watch: AsyncMutex<Option<GroupWatch>>,
    partitions: Mutex<i32>,
    collected: Mutex<Collected>,
}

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) steps: Vec<Step>,
    pub(crate) members: Vec<(Arguments, Arc<Member>)>,
    pub(crate) counts: BTreeMap<String, i64>,
    pub(crate) findings: Option<Findings>,
    pub(crate) committed: Vec<Committed>,
    pub(crate) effects: Vec<EffectAt>,
    // The ends of the topic's partitions, as the lab has written them.
    ends: BTreeMap<i32, i64>,
    // What was in the topic before something was removed from it.
    before: Vec<RawRecord>,
    killed: u32,
    era: u32,
}

/// What a case is made with.
pub(crate) struct Terms {
    pub(crate) services: Arc<Services>,
    /// How many nodes its Kafka has.
    pub(crate) nodes: usize,
    pub(crate) protocol: Protocol,
    pub(crate) seed: u64,
    pub(crate) scale: Scale,
    /// Names topic and group of this run of the experiment.
    pub(crate) id: String,
    /// Names its schema: such names are short.
    pub(crate) schema: String,
    /// Where logs go.
    pub(crate) directory: PathBuf,
    pub(crate) line: Line,
}

// ===== impl Case =====

impl Case {
    pub(crate) async fn begin(terms: Terms) -> Result<Self> {
        let Terms { nodes, services, protocol, seed, scale, id, schema, directory, line } = terms;
        tokio::fs::create_dir_all(&directory).await?;
        let nodes = if nodes == 3 { Some(services.three_nodes().await?) } else { None };
        let bootstrap = nodes.as_ref().map_or(services.bootstrap(), |it| &it.bootstrap);
        let cluster = Cluster::new(bootstrap, nodes.as_ref().map_or(1, |_| 3))?;
        let schema = Schema::create(services.database_url(), &schema).await;
        Ok(Self {
            protocol,
            seed,
            scale,
            topic: id.clone(),
            group: id,
            cluster,
            nodes,
            schema: schema.context("making the schema")?,
            services,
            directory,
            line,
            watch: AsyncMutex::default(),
            partitions: Mutex::default(),
            collected: Mutex::default(),
        })
    }

    // ===== what is done =====

    /// A part of the experiment begins.
    pub(crate) fn phase(&self, what: &str) {
        self.line.phase(what);
        self.step(StepKind::Phase, what);
    }

    /// A fault has taken effect.
    pub(crate) fn fault(&self, what: impl Into<String>) {
        self.step(StepKind::Fault, what);
    }

    /// What was made worse is as it was.
    pub(crate) fn relief(&self, what: impl Into<String>) {
        self.step(StepKind::Relief, what);
    }

    /// Counts something for the report.
    pub(crate) fn count(&self, name: &str, count: impl TryInto<i64>) {
        let count = count.try_into().unwrap_or(i64::MAX);
        self.collected().counts.insert(name.to_owned(), count);
    }

    /// When that was noted as a fault, a relief or a phase, in milliseconds since
    /// the Unix epoch.
    pub(crate) fn times_of(&self, what: &str) -> Vec<i64> {
        let collected = self.collected();
        collected.steps.iter().filter(|step| step.what == what).map(|step| step.at).collect()
    }

    fn step(&self, kind: StepKind, what: impl Into<String>) {
        self.collected().steps.push(Step::new(kind, what));
    }

    // ===== the topic =====

    /// Makes the topic, and watches the group from now on.
    pub(crate) async fn create_topic(&self, partitions: i32) -> Result<()> {
        self.cluster.create_topic(&self.topic, partitions).await?;
        *lock(&self.partitions) = partitions;
        self.collected().ends = (0..partitions).map(|it| (it, 0)).collect();
        self.watch_group().await
    }

    /// Writes records of a ledger.
    pub(crate) async fn produce(&self, records: &[LedgerRecord]) -> Result<()> {
        self.write(records.iter().map(NewRecord::from).collect()).await
    }

    /// Writes records.
    pub(crate) async fn write(&self, records: Vec<NewRecord>) -> Result<()> {
        let partitions: Vec<_> = records.iter().map(|record| record.partition).collect();
        self.cluster.write(&self.topic, records).await?;
        let mut collected = self.collected();
        for partition in partitions {
            *collected.ends.entry(partition).or_default() += 1;
        }
        Ok(())
    }

    /// The offset behind the last record of a partition.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        self.collected().ends.get(&partition).copied().unwrap_or_default()
    }

    /// How many records were written.
    pub(crate) fn written_records(&self) -> i64 {
        self.collected().ends.values().sum()
    }

    /// How many partitions the topic has.
    pub(crate) fn partitions(&self) -> usize {
        usize::try_from(*lock(&self.partitions)).unwrap_or_default()
    }

    /// The nodes of its Kafka, if it has more than one.
    pub(crate) fn nodes(&self) -> Result<&ThreeNodes> {
        self.nodes.as_ref().context("it has one node")
    }

    /// Where its brokers are found.
    pub(crate) fn bootstrap(&self) -> &str {
        self.nodes.as_ref().map_or(self.services.bootstrap(), |it| &it.bootstrap)
    }

    /// The services that it works with.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Asks the broker how far the topic goes, where not all is known that was
    /// written.
    pub(crate) async fn find_ends(&self) -> Result<()> {
        let partitions = *lock(&self.partitions);
        let ends = self.cluster.ends(&self.topic, partitions).await?;
        self.collected().ends = ends;
        Ok(())
    }

    /// Waits until the group has committed all that was written.
    pub(crate) async fn consumed(&self) -> Result<()> {
        let all: Vec<_> = (0..*lock(&self.partitions)).collect();
        self.consumed_of(&all).await
    }

    /// The same, of some partitions. It may take as long as it needs, while it
    /// goes on.
    pub(crate) async fn consumed_of(&self, partitions: &[i32]) -> Result<()> {
        let mut last = self.committed().await?;
        loop {
            let consumed = until("the group commits more of what was written", async || {
                let now = self.committed().await?;
                let goes_on = now != last;
                last = now;
                let written = self.written();
                let mut ends = partitions.iter().map(|it| self.partition(*it));
                let is_read = |it| written.get(&it).is_none_or(|end| last.get(&it) == Some(end));
                if ends.all(is_read) {
                    return Ok(Some(true));
                }
                Ok(goes_on.then_some(false))
            });
            match consumed.await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error.context(self.what_is_left().await?)),
            }
        }
    }

    /// What was written and is not committed, in words.
    pub(crate) async fn what_is_left(&self) -> Result<String> {
        Ok(format!("committed {:?} of {:?}", self.committed().await?, self.written()))
    }

    fn written(&self) -> BTreeMap<Partition, i64> {
        let collected = self.collected();
        let written = collected.ends.iter().filter(|(_, end)| **end > 0);
        written.map(|(partition, end)| (self.partition(*partition), *end)).collect()
    }

    /// What the group has committed, as was seen last.
    pub(crate) async fn committed(&self) -> Result<BTreeMap<Partition, i64>> {
        let watch = self.watch.lock().await;
        Ok(watch.as_ref().context("the group is not watched")?.latest())
    }

    /// Where the group has committed a partition, if it has.
    pub(crate) async fn committed_at(&self, partition: i32) -> Result<Option<i64>> {
        Ok(self.committed().await?.get(&self.partition(partition)).copied())
    }

    /// What the group has committed of each partition, as the broker says it now.
    pub(crate) async fn look_at_committed(&self) -> Result<BTreeMap<i32, Option<i64>>> {
        let all = self.reader().committed(self.group.clone(), [self.topic.as_str()]).await?;
        Ok(all.into_iter().map(|it| (it.partition.partition, it.offset)).collect())
    }

    pub(crate) fn partition(&self, number: i32) -> Partition {
        Partition::new(self.topic.as_str(), number)
    }

    /// A partition as logs show it.
    pub(crate) fn partition_name(&self, number: i32) -> String {
        format!("{}-{number}", self.topic)
    }

    async fn watch_group(&self) -> Result<()> {
        let era = self.collected().era;
        let watch = self.reader().watch(self.group.clone(), [self.topic.as_str()], LOOK).await?;
        *self.watch.lock().await = Some(watch.in_era(era));
        Ok(())
    }

    async fn stop_watch(&self) -> Result<()> {
        if let Some(watch) = self.watch.lock().await.take() {
            let seen = watch.stop().await?;
            self.collected().committed.extend(seen);
        }
        Ok(())
    }

    /// Sets the group's offsets on purpose: going back is no violation then.
    pub(crate) async fn set_offsets<T>(&self, set: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        self.stop_watch().await?;
        self.collected().era += 1;
        let result = set().await;
        self.watch_group().await?;
        result
    }

    /// The product's own operations on the group.
    pub(crate) fn admin(&self) -> Result<GroupAdmin> {
        let config = KafkaConfig::new(self.bootstrap(), self.group.as_str());
        Ok(GroupAdmin::new(&config)?)
    }

    fn reader(&self) -> Reader {
        Reader::new(self.bootstrap())
    }

    // ===== processes =====

    /// The arguments of a worker, before an experiment changes them.
    pub(crate) fn arguments(&self, name: &str) -> Arguments {
        Arguments {
            name: name.to_owned(),
            kafka: self.bootstrap().to_owned(),
            group: self.group.clone(),
            topic: vec![self.topic.clone()],
            protocol: self.protocol,
            instance: None,
            database: self.schema.url(),
            generation: 1,
            without: Vec::new(),
            guard: false,
            sabotage: None,
            detached: false,
            overwrites: false,
            lanes: 1,
            batch: 50,
            work: 0,
            session: 6_000,
            poll_interval: 60_000,
            commit_interval: 200,
            drain: None,
            connections: 4,
            idle_transaction: 60_000,
            start: Start::Earliest,
            topic_check: 30_000,
            stall: 10_000,
            property: debug_property(),
        }
    }

    /// Starts a worker.
    pub(crate) async fn start(&self, arguments: Arguments) -> Result<Arc<Member>> {
        let log = self.directory.join(format!("{}.log", arguments.name));
        let log = File::options().create(true).append(true).open(&log).await?;
        let member = Arc::new(Member::start(self.services.run(), &arguments, log)?);
        self.collected().members.push((arguments, Arc::clone(&member)));
        Ok(member)
    }

    /// Starts a worker as it is by default.
    pub(crate) async fn start_plain(&self, name: &str) -> Result<Arc<Member>> {
        self.start(self.arguments(name)).await
    }

    /// Waits until a member works on partitions, each of them.
    pub(crate) async fn works_on(&self, member: &Member, partitions: &[i32]) -> Result<()> {
        for partition in partitions {
            member.works_on(0, &self.partition_name(*partition)).await?;
        }
        Ok(())
    }

    /// Kills a member, and sees that it died of it.
    pub(crate) async fn kill(&self, member: &Member) -> Result<()> {
        use std::os::unix::process::ExitStatusExt as _;

        member.signal(Signal::SIGKILL);
        let status = member.ended().await?;
        if status.signal() != Some(Signal::SIGKILL as i32) {
            bail!("the fault did not take effect: {} had ended, with {status}", member.name());
        }
        self.fault(format!("{} is killed (SIGKILL)", member.name()));
        self.collected().killed += 1;
        Ok(())
    }

    /// How many members were killed.
    pub(crate) fn killed(&self) -> u32 {
        self.collected().killed
    }

    /// Asks a member to end, and expects that it does so in order.
    pub(crate) async fn terminate(&self, member: &Member) -> Result<()> {
        member.ask_to_end().await?;
        let status = member.ended().await?;
        if !status.success() {
            bail!("{} ended with {status} when it was asked to end", member.name());
        }
        Ok(())
    }

    /// A proxy before the database.
    pub(crate) async fn database_proxy(&self) -> Result<Proxy> {
        Ok(Proxy::start(self.schema.authority()?, Wire::Postgres).await?)
    }

    // ===== what all of them say =====

    /// The logs of all members.
    pub(crate) fn logs(&self) -> Vec<Vec<Logged>> {
        let collected = self.collected();
        collected.members.iter().map(|(_, member)| member.log()).collect()
    }

    /// How often an event was logged, by all members.
    pub(crate) fn logged(&self, message: &str) -> usize {
        self.logs().iter().flatten().filter(|event| event.message == message).count()
    }

    /// The generations of the group in which members were given partitions, or
    /// nothing.
    pub(crate) fn generations(&self) -> BTreeSet<i64> {
        self.logs().iter().flat_map(|log| generations(log)).collect()
    }

    /// How many records had an outcome, by what members have told last.
    pub(crate) async fn outcomes(&self, outcome: &str) -> Result<i64> {
        let members: Vec<_> =
            self.collected().members.iter().map(|(_, member)| Arc::clone(member)).collect();
        let mut sum = 0;
        for member in members {
            sum += member.outcomes(outcome).await?;
        }
        Ok(sum)
    }

    /// The committed offsets that were seen, each when it changed.
    pub(crate) fn seen_commits(&self) -> Vec<Committed> {
        self.collected().committed.clone()
    }

    // ===== the end =====

    /// Removes what the experiment has made.
    pub(crate) async fn remove(&self) -> Result<()> {
        // One that fails does not keep the other.
        let (schema, topic) = (self.remove_schema().await, self.remove_topic().await);
        schema.and(topic)
    }

    /// Removes its tables.
    pub(crate) async fn remove_schema(&self) -> Result<()> {
        self.schema.drop().await
    }

    /// Removes its topic and its group.
    pub(crate) async fn remove_topic(&self) -> Result<()> {
        let topic = self.cluster.delete_topic(&self.topic).await;
        let group = self.cluster.delete_group(&self.group).await;
        topic.and(group)
    }

    pub(crate) fn collected(&self) -> MutexGuard<'_, Collected> {
        lock(&self.collected)
    }
}

/// What the client itself is to log, for a person who looks for a fault in it.
fn debug_property() -> Vec<String> {
    let contexts = std::env::var("TIDEGATE_LAB_DEBUG").ok();
    contexts.map(|contexts| format!("debug={contexts}")).into_iter().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The generations in a member's log, in their order.
pub(crate) fn generations(log: &[Logged]) -> impl Iterator<Item = i64> {
    let assigned = log.iter().filter(|event| event.message == says::ASSIGNED);
    assigned.filter_map(|event| event.number("generation"))
}
