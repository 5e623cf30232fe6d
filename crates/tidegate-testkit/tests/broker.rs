//! The embedded broker does what its documentation lets a test assert.

#![cfg(feature = "broker")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext, Message as _, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance},
    error::KafkaError,
    topic_partition_list::Offset,
};
use tidegate_testkit::{
    ApiKey, Broker, BrokerConfig, BrokerFailure, ErrorCode, NewRecord, NotConsumed,
};

const DEADLINE: Duration = Duration::from_secs(60);
const TOPIC: &str = "transfers";

fn broker(partitions: i32) -> Broker {
    // A session so long that no load of the machine ends one.
    let config = BrokerConfig::default().with_session(DEADLINE).with_topic(TOPIC, partitions);
    Broker::start(config).expect("a port is free")
}

/// `count` records in each partition.
fn produce(broker: &Broker, partitions: i32, count: i64) {
    let records = (0..count).flat_map(|number| {
        (0..partitions).map(move |partition| NewRecord::new(partition, format!("{number}")))
    });
    broker.produce(TOPIC, records).expect("the broker takes records");
}

fn client(broker: &Broker, group: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", broker.bootstrap())
        .set("group.id", group)
        .set("group.protocol", "consumer")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "20");
    config
}

/// What a member tells.
enum Event {
    /// It has been given partitions.
    Assigned { member: usize },
    /// It has done a record.
    Done { member: usize, partition: i32, offset: i64 },
}

/// Commits what is done before it gives a partition back. Nothing is under way
/// then: the member works where it polls.
///
/// It remembers itself what is done. The client's position is beyond that when
/// a consumer is dropped: it polls until it is closed, and throws records away.
struct Careful {
    member: usize,
    events: SyncSender<Event>,
    next: Mutex<BTreeMap<i32, i64>>,
}

impl ClientContext for Careful {}

impl ConsumerContext for Careful {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(revoked) = rebalance else { return };
        let mut next = self.next.lock().expect("no member panics while it holds this");
        let mut done = TopicPartitionList::new();
        for element in revoked.elements() {
            if let Some(offset) = next.remove(&element.partition()) {
                done.add_partition_offset(TOPIC, element.partition(), Offset::Offset(offset))
                    .expect("an offset is not negative");
            }
        }
        if done.count() > 0 {
            consumer.commit(&done, CommitMode::Sync).expect("a member may commit");
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(assigned) = rebalance
            && assigned.count() > 0
        {
            let assigned = Event::Assigned { member: self.member };
            self.events.send(assigned).expect("the test outlives the member");
        }
    }
}

struct Member {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Member {
    fn join(broker: &Broker, member: usize, events: SyncSender<Event>) -> Self {
        let careful = Careful { member, events, next: Mutex::default() };
        let consumer: BaseConsumer<Careful> =
            client(broker, "group").create_with_context(careful).expect("the settings are right");
        consumer.subscribe(&[TOPIC]).expect("a topic has a name");
        let stop = Arc::<AtomicBool>::default();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    work(&consumer);
                }
                give_back(&consumer);
            }
        });
        Self { stop, thread }
    }

    fn leave(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a member does not panic");
    }
}

fn work(consumer: &BaseConsumer<Careful>) {
    let Some(message) = consumer.poll(Duration::from_millis(10)) else { return };
    let message = message.expect("nothing fails here");
    let (partition, offset) = (message.partition(), message.offset());
    let Careful { member, events, next } = &**consumer.context();
    let done = Event::Done { member: *member, partition, offset };
    events.send(done).expect("the test outlives the member");
    next.lock().expect("no member panics while it holds this").insert(partition, offset + 1);
}

/// Leaves the group before the consumer is closed.
///
/// Closed while the group hands out partitions, librdkafka 2.12 may end the
/// process by an assertion.
fn give_back(consumer: &BaseConsumer<Careful>) {
    consumer.unsubscribe();
    while consumer.assignment().expect("the consumer is not closed").count() > 0 {
        // Handed out and not done: the next owner's.
        drop(consumer.poll(Duration::from_millis(10)));
    }
}

/// What the members have told.
struct Told {
    events: Receiver<Event>,
    assigned: BTreeSet<usize>,
    // By partition and offset.
    done: BTreeMap<(i32, i64), Vec<usize>>,
}

impl Told {
    fn until(&mut self, is: impl Fn(&Self) -> bool) {
        while !is(self) {
            match self.events.recv_timeout(DEADLINE).expect("the members go on") {
                Event::Assigned { member } => {
                    self.assigned.insert(member);
                }
                Event::Done { member, partition, offset } => {
                    self.done.entry((partition, offset)).or_default().push(member);
                }
            }
        }
    }
}

// Three members; one leaves with records under way, and one joins.
#[tokio::test]
async fn under_the_consumer_protocol_nothing_is_missing_and_nothing_comes_twice() {
    // With so long an interval that no member is late with its answer.
    let config = BrokerConfig::default().with_heartbeat(Duration::from_millis(500));
    let broker = Broker::start(config.with_session(DEADLINE).with_topic(TOPIC, 8)).unwrap();
    broker.begin_group("group", [TOPIC]).unwrap();
    // So large that no member waits for the test.
    let (sender, events) = mpsc::sync_channel(10_000);
    let mut told = Told { events, assigned: BTreeSet::new(), done: BTreeMap::new() };
    let join = |member| Member::join(&broker, member, sender.clone());

    let [leaving, second, third] = [0, 1, 2].map(join);
    // A member that has not arrived cannot leave.
    told.until(|told| told.assigned.len() == 3);
    produce(&broker, 8, 200);
    told.until(|told| told.done.len() >= 500);
    leaving.leave();
    produce(&broker, 8, 100);
    told.until(|told| told.done.len() >= 2000);
    let fourth = join(3);
    told.until(|told| told.assigned.contains(&3));
    produce(&broker, 8, 100);
    told.until(|told| told.done.len() == 3200);
    for member in [second, third, fourth] {
        member.leave();
    }

    let rest = told.events.try_iter().filter(|event| matches!(event, Event::Done { .. }));
    let twice = told.done.values().filter(|members| members.len() > 1).count() + rest.count();
    assert_eq!(twice, 0, "records were handed out twice");
    assert!(
        told.done
            .keys()
            .all(|(partition, offset)| { (0..8).contains(partition) && (0..400).contains(offset) })
    );
    broker.consumed("group", TOPIC, DEADLINE).await.unwrap();
    let ends = broker.end_offsets(TOPIC).unwrap();
    assert_eq!(ends, (0..8).map(|partition| (partition, 400)).collect());
}

#[tokio::test]
async fn a_group_that_has_not_read_to_the_end_is_said_not_to_have() {
    let broker = broker(2);
    produce(&broker, 2, 3);
    broker.commit("group", TOPIC, [(0, 3), (1, 2)]).unwrap();
    let failure = broker.consumed("group", TOPIC, Duration::ZERO).await.unwrap_err();
    assert!(matches!(failure, NotConsumed::Deadline { .. }), "{failure}");
    broker.commit("group", TOPIC, [(1, 3)]).unwrap();
    broker.consumed("group", TOPIC, Duration::ZERO).await.unwrap();
}

#[test]
fn a_group_begins_at_the_start_where_it_has_no_offset() {
    let broker = broker(3);
    produce(&broker, 3, 2);
    assert_eq!(broker.committed("group", TOPIC).unwrap(), [(0, None), (1, None), (2, None)].into());
    broker.commit("group", TOPIC, [(1, 2)]).unwrap();
    broker.begin_group("group", [TOPIC]).unwrap();
    let begun = [(0, Some(0)), (1, Some(2)), (2, Some(0))].into();
    assert_eq!(broker.committed("group", TOPIC).unwrap(), begun);
}

#[test]
fn records_are_written_as_they_are_given() {
    let broker = broker(1);
    let records = [
        NewRecord::new(0, "payload").with_key("key").with_header("name", "value"),
        NewRecord::tombstone(0, "key"),
        NewRecord::new(0, ""),
    ];
    broker.produce(TOPIC, records).unwrap();
    let consumer: BaseConsumer = client(&broker, "reader").create().unwrap();
    let mut start = TopicPartitionList::new();
    start.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
    consumer.assign(&start).unwrap();
    let read = || {
        let message = consumer.poll(DEADLINE).expect("it was written").unwrap();
        (message.key().map(Vec::from), message.payload().map(Vec::from))
    };
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(read(), (bytes("key"), bytes("payload")));
    assert_eq!(read(), (bytes("key"), None));
    assert_eq!(read(), (None, bytes("")));
}

#[test]
fn a_partition_that_loses_records_is_noticed() {
    let broker = broker(1);
    let records = (0..7).map(|_| NewRecord::new(0, vec![0; 900_000]));
    let failure = records.map(|record| broker.produce(TOPIC, [record])).find_map(Result::err);
    let failure = failure.expect("a partition keeps 5 MiB");
    assert!(matches!(failure, BrokerFailure::Overflow { partition: 0, .. }), "{failure}");
}

#[test]
fn what_is_not_there_is_said_so() {
    let broker = broker(1);
    let failure = broker.end_offsets("nowhere").unwrap_err();
    assert_eq!(failure.to_string(), "the embedded broker has no topic `nowhere`");
    let failure = broker.create_topic(TOPIC, 1).unwrap_err();
    assert!(matches!(failure, BrokerFailure::Refused { what: "make a topic", .. }), "{failure}");
    assert!(broker.take_down(7).is_err());
    assert!(matches!(broker.create_topic("a\0b", 1), Err(BrokerFailure::Name { .. })));
}

fn commit(consumer: &BaseConsumer, offset: i64) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(TOPIC, 0, Offset::Offset(offset))?;
    consumer.commit(&list, CommitMode::Sync)
}

#[test]
fn requests_are_answered_with_the_errors_that_a_test_wants_and_are_counted() {
    let broker = broker(1);
    let consumer: BaseConsumer = client(&broker, "group").create().unwrap();
    broker.track_requests();
    broker.fail_requests(ApiKey::OFFSET_COMMIT, &[ErrorCode::GroupAuthorizationFailed]);
    let failure = commit(&consumer, 0).unwrap_err();
    assert_eq!(failure.rdkafka_error_code(), Some(ErrorCode::GroupAuthorizationFailed));
    commit(&consumer, 0).unwrap();

    broker.fail_requests(ApiKey::OFFSET_COMMIT, &[ErrorCode::GroupAuthorizationFailed]);
    broker.clear_failures(ApiKey::OFFSET_COMMIT);
    commit(&consumer, 0).unwrap();
    let commits = broker.requests().into_iter().filter(|it| it.api == ApiKey::OFFSET_COMMIT);
    assert_eq!(commits.map(|it| it.broker).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_broker_goes_down_and_comes_up_at_its_address() {
    let broker = broker(1);
    let mut config = client(&broker, "group");
    config.set("reconnect.backoff.max.ms", "100");
    let consumer: BaseConsumer = config.create().unwrap();
    commit(&consumer, 0).unwrap();
    broker.take_down(1).unwrap();
    assert!(consumer.fetch_metadata(Some(TOPIC), Duration::from_millis(200)).is_err());
    broker.bring_up(1).unwrap();
    consumer.fetch_metadata(Some(TOPIC), DEADLINE).unwrap();
    commit(&consumer, 0).unwrap();
}

#[test]
fn the_answers_of_a_broker_can_be_delayed() {
    let broker = broker(1);
    let consumer: BaseConsumer = client(&broker, "group").create().unwrap();
    consumer.fetch_metadata(Some(TOPIC), DEADLINE).unwrap();
    broker.set_round_trip(1, Duration::from_secs(30)).unwrap();
    assert!(consumer.fetch_metadata(Some(TOPIC), Duration::from_millis(300)).is_err());
    broker.set_round_trip(1, Duration::ZERO).unwrap();
    // The answer that is under way still takes its time; a new one does not.
    let other: BaseConsumer = client(&broker, "group").create().unwrap();
    other.fetch_metadata(Some(TOPIC), DEADLINE).unwrap();
}

#[test]
fn a_group_moves_to_the_coordinator_that_a_test_wants() {
    let mut config = BrokerConfig::default().with_topic(TOPIC, 1);
    config.brokers = 2;
    let broker = Broker::start(config).unwrap();
    for coordinator in [1, 2] {
        broker.set_coordinator("group", coordinator).unwrap();
        let consumer: BaseConsumer = client(&broker, "group").create().unwrap();
        broker.track_requests();
        commit(&consumer, 0).unwrap();
        let mut commits = broker.requests().into_iter();
        let commit = commits.find(|request| request.api == ApiKey::OFFSET_COMMIT).unwrap();
        assert_eq!(commit.broker, coordinator);
    }
}

#[test]
fn a_client_that_outlives_its_broker_sees_one_that_is_away() {
    let broker = broker(1);
    let consumer: BaseConsumer = client(&broker, "group").create().unwrap();
    commit(&consumer, 0).unwrap();
    drop(broker);
    assert!(consumer.fetch_metadata(Some(TOPIC), Duration::from_millis(100)).is_err());
}

#[test]
fn brokers_do_not_meet() {
    let (first, second) = (broker(1), broker(1));
    produce(&first, 1, 3);
    assert_eq!(first.end_offsets(TOPIC).unwrap(), [(0, 3)].into());
    assert_eq!(second.end_offsets(TOPIC).unwrap(), [(0, 0)].into());
    assert_ne!(first.bootstrap(), second.bootstrap());
}

// A producer's own batches, offsets and all, through the whole kit.
#[cfg(feature = "generator")]
#[test]
fn a_generated_topic_lies_where_the_generator_says() {
    let ledger = tidegate_testkit::LedgerConfig::new(5, 2_000).generate();
    let broker = broker(8);
    broker.produce(TOPIC, ledger.records.iter().map(NewRecord::from)).unwrap();
    let mut ends = BTreeMap::<_, i64>::new();
    for record in &ledger.records {
        *ends.entry(record.partition).or_default() = record.offset + 1;
    }
    assert_eq!(broker.end_offsets(TOPIC).unwrap(), ends);
}
