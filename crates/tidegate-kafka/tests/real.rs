//! The driver on a real Kafka, the one that `TIDEGATE_KAFKA` names.

mod support;

use std::{
    collections::BTreeMap,
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use support::{Journal, Member, PATIENCE, takes, until};
use tidegate_core::{Class, DeadLetters as _, Epoch, Error, Lease, Record, TopicPartition};
use tidegate_kafka::{
    DeadLetterTopic, KafkaConfig,
    group::{GroupAdmin, GroupError, ResetTo},
};
use tidegate_testkit::{Cluster, NewRecord};
use tokio::task::spawn_blocking;

/// A topic with a group of its own on a real cluster.
struct Real {
    bootstrap: String,
    name: String,
    admin: AdminClient<DefaultClientContext>,
}

const PARTITIONS: i32 = 4;

impl Real {
    /// A topic of its own, if there is a cluster.
    #[expect(clippy::print_stderr, reason = "what is skipped is said")]
    async fn begin(test: &str) -> Option<Self> {
        let Ok(bootstrap) = env::var("TIDEGATE_KAFKA") else {
            eprintln!("skipped: TIDEGATE_KAFKA names no cluster");
            return None;
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("1970 is over");
        let name = format!("tidegate-test-{test}-{}", since.as_nanos());
        let admin: AdminClient<_> = ClientConfig::new()
            .set("bootstrap.servers", &bootstrap)
            .create()
            .expect("the settings are right");
        let made = Cluster::at(&bootstrap).create_topic(&name, PARTITIONS).await;
        assert!(made.expect("the cluster makes it"), "it is new");
        Some(Self { bootstrap, name, admin })
    }

    async fn end(self) {
        let options = AdminOptions::new();
        self.admin.delete_topics(&[&self.name], &options).await.expect("the cluster answers");
        self.admin.delete_groups(&[&self.name], &options).await.expect("the cluster answers");
    }

    /// Writes so many records to each partition.
    async fn produce(&self, records: i64) {
        let of =
            move |partition| (0..records).map(move |n| NewRecord::new(partition, n.to_string()));
        let records = (0..PARTITIONS).flat_map(of).collect();
        let cluster = Cluster::at(&self.bootstrap);
        cluster.produce(&self.name, records).await.expect("they are written");
    }

    /// Writes a record to partition 0 in a transaction, and ends that.
    async fn transaction(&self, commits: bool) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("transactional.id", &self.name)
            .create()
            .expect("the settings are right");
        let topic = self.name.clone();
        let write = move || {
            producer.init_transactions(PATIENCE)?;
            producer.begin_transaction()?;
            let record = BaseRecord::<(), str>::to(&topic).partition(0).payload("in a transaction");
            producer.send(record).map_err(|(error, _)| error)?;
            producer.flush(PATIENCE)?;
            if commits {
                producer.commit_transaction(PATIENCE)
            } else {
                producer.abort_transaction(PATIENCE)
            }
        };
        spawn_blocking(write).await.expect("it does not panic").expect("the transaction ends");
    }

    /// A member's configuration, on each of the protocols.
    fn configs(&self) -> [KafkaConfig; 3] {
        let config = || {
            KafkaConfig::new(&self.bootstrap, &self.name)
                .property("session.timeout.ms", "6000")
                .commit_interval(Duration::from_millis(100))
        };
        let strategy = "partition.assignment.strategy";
        [
            config().property(strategy, "range"),
            config().property(strategy, "cooperative-sticky"),
            KafkaConfig::new(&self.bootstrap, &self.name)
                .property("group.protocol", "consumer")
                .commit_interval(Duration::from_millis(100)),
        ]
    }

    fn member(&self, config: KafkaConfig, journal: &Journal) -> Member {
        Member::start_on(&self.name, config, journal, takes(1))
    }

    /// Waits until the group has committed to the ends, never backwards.
    async fn consumed(&self, admin: &GroupAdmin, partitions: usize) {
        let consumed = async {
            let mut before = BTreeMap::new();
            loop {
                let offsets = admin.offsets().await.expect("the cluster answers");
                for (partition, it) in &offsets {
                    let last = before.insert(partition.clone(), it.offset).flatten();
                    assert!(last <= it.offset, "{partition:?}: {last:?}, then {:?}", it.offset);
                }
                let at_end = offsets.values().filter(|it| it.offset == Some(it.high));
                if at_end.count() == partitions {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, consumed).await.expect("all is consumed in time");
    }
}

// C6, C8, D13: eager and cooperative, in the group's own calls for each.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_joins_takes_over_where_the_other_one_stopped() {
    for protocol in 0..3 {
        let Some(real) = Real::begin("handover").await else { return };
        let config = || real.configs()[protocol].clone();
        let admin = GroupAdmin::new(&config()).expect("the settings are right");
        let journal = Journal::default();
        let first = real.member(config(), &journal);
        real.produce(200).await;
        until("the first one works", || journal.count() > 20).await;
        let second = real.member(config(), &journal);
        until("the second one has partitions", || !second.status.partitions().is_empty()).await;
        first.end().await.expect("it leaves in order");
        real.consumed(&admin, PARTITIONS as usize).await;
        second.end().await.expect("it leaves in order");
        journal.assert_no_overlap();
        let times = journal.times();
        assert_eq!(times.len(), 200 * PARTITIONS as usize);
        assert!(times.values().all(|times| *times == 1), "{times:?}");
        real.end().await;
    }
}

// C3: a commit marker and an aborted record have offsets, and are never
// delivered.
#[tokio::test(flavor = "multi_thread")]
async fn the_frontier_reaches_the_end_behind_transactions() {
    let Some(real) = Real::begin("transactions").await else { return };
    real.produce(3).await;
    real.transaction(true).await;
    real.transaction(false).await;
    let [_, _, config] = real.configs();
    let admin = GroupAdmin::new(&config).expect("the settings are right");
    let journal = Journal::default();
    let member = real.member(config, &journal);
    real.consumed(&admin, PARTITIONS as usize).await;
    let partition = TopicPartition::new(real.name.as_str(), 0);
    let committed = admin.offsets().await.expect("the cluster answers")[&partition].offset;
    assert_eq!(committed, Some(3 + 2 + 2));
    assert_eq!(journal.count(), 3 * PARTITIONS as usize + 1, "the aborted one is not delivered");
    member.end().await.expect("it leaves in order");
    real.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_set_only_while_the_group_is_stopped() {
    for protocol in 0..3 {
        let Some(real) = Real::begin("offsets").await else { return };
        let config = || real.configs()[protocol].clone();
        let admin = GroupAdmin::new(&config()).expect("the settings are right");
        let journal = Journal::default();
        let member = real.member(config(), &journal);
        real.produce(5).await;
        real.consumed(&admin, PARTITIONS as usize).await;
        let topics = || [real.name.as_str()];
        let plan = admin.plan(topics(), ResetTo::Offset(2)).await.expect("it is in the log");
        let refused = admin.execute(&plan).await.unwrap_err();
        assert!(matches!(refused, GroupError::Active { members: 1, .. }), "{refused}");
        member.end().await.expect("it leaves in order");

        admin.execute(&plan).await.expect("nobody is there");
        let outdated = admin.execute(&plan).await.unwrap_err();
        assert!(matches!(outdated, GroupError::Outdated { .. }), "{outdated}");
        let member = real.member(config(), &journal);
        real.consumed(&admin, PARTITIONS as usize).await;
        member.end().await.expect("it leaves in order");
        let twice = journal.times().into_iter().filter(|(_, times)| *times == 2);
        assert_eq!(twice.count(), 3 * PARTITIONS as usize);

        let outside = admin.plan(topics(), ResetTo::Offset(6)).await.unwrap_err();
        assert!(matches!(outside, GroupError::NoSuchOffset { .. }), "{outside}");
        real.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_without_a_topic_is_not_stored() {
    let Some(real) = Real::begin("letters").await else { return };
    let [_, _, config] = real.configs();
    let record = Record::new(TopicPartition::new(&*real.name, 0), 7, "not json");
    let (_owner, lease) = Lease::grant(record.partition.clone(), Epoch::new(1, "member"));
    let cause = Error::new(Class::Poison, "expected value");
    let bury = async |topic: String| {
        let store = DeadLetterTopic::new(&config, topic).expect("the settings are right");
        store.bury(&lease, &record, &cause).await
    };
    bury(real.name.clone()).await.expect("there is a topic");
    let error = bury(format!("{}-letters", real.name)).await.expect_err("there is none");
    assert_eq!(error.class(), Class::Fatal, "{}", error.chain());
    real.end().await;
}
