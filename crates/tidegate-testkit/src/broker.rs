//! A Kafka broker in the test's own process.

mod cluster;
mod config;
mod error;
mod ffi;
mod observer;
mod produce;

use std::{
    collections::BTreeMap,
    ffi::CString,
    fmt,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

pub use self::{
    cluster::Cluster,
    config::BrokerConfig,
    error::{BrokerFailure, NotConsumed},
    produce::NewRecord,
};
use self::{ffi::Cluster as Embedded, observer::Observers};
use crate::ApiKey;

/// An error code of the Kafka protocol, as `librdkafka` names it.
pub type ErrorCode = rdkafka::types::RDKafkaErrorCode;

/// An embedded broker: librdkafka's mock cluster, in this process.
///
/// Any client may connect to it, also one of another process. It has topics,
/// transactions and groups of all three protocols; it keeps everything in
/// memory, and is gone when it is dropped: a client that lives on then sees a
/// broker that is away.
///
/// ```
/// use tidegate_testkit::{Broker, BrokerConfig, NewRecord};
///
/// # fn main() -> Result<(), tidegate_testkit::BrokerFailure> {
/// let broker = Broker::start(BrokerConfig::default().with_topic("transfers", 2))?;
/// broker.begin_group("ledger", ["transfers"])?;
/// broker.produce("transfers", [NewRecord::new(1, "payload").with_key("alice")])?;
///
/// assert_eq!(broker.end_offsets("transfers")?, [(0, 0), (1, 1)].into());
/// assert_eq!(broker.committed("ledger", "transfers")?, [(0, Some(0)), (1, Some(0))].into());
/// println!("members of `ledger` connect to {}", broker.bootstrap());
/// # Ok(())
/// # }
/// ```
///
/// Its calls wait for the broker, which takes milliseconds, and are not `async`
/// for that.
///
/// # What a test may assert
///
/// | | consumer protocol | …, a member fenced by an injected heartbeat error | …, broker down or coordinator errors | cooperative-sticky | range |
/// | --- | --- | --- | --- | --- | --- |
/// | nothing is missing | yes | yes | yes | yes | yes |
/// | nothing is delivered twice | yes | no more than that member had unfinished or unconfirmed | no | no | no |
/// | no two members at once | yes | yes | no | yes | yes |
/// | committed offsets never go back | yes | yes | no | yes | yes |
/// | committed = end when all have left | yes | yes | yes | if it was quiet before | if it was quiet before |
///
/// The first column holds if offset 0 was committed for each partition before
/// the first member came, which is what [`begin_group`](Self::begin_group)
/// does: a client that looks the position up itself may start a partition that
/// it has just given back. It also holds only if members answer an assignment
/// within a heartbeat interval.
///
/// The last two columns want a session of 3 s or more, in the member's own
/// configuration, and members that come and go no faster than every 3 s: each
/// rebalance of a classic group takes a session less a second here, and commits
/// are refused meanwhile.
///
/// On a loaded machine, give sessions and heartbeats more room: 30 s and 500 ms
/// in a [`BrokerConfig`].
///
/// # Plain consumers as members
///
/// A test that has no driver, and uses librdkafka's consumers as members, keeps
/// the first column only if each
///
/// - has had an assignment before it leaves: one that leaves while it joins may
///   keep its share until its session ends;
/// - unsubscribes, and polls until its assignment is empty, before it is
///   closed: closed while the group hands out partitions, librdkafka 2.12 may
///   end the process by an assertion;
/// - remembers itself which records are done: a consumer that is dropped polls
///   until it is closed, throws those records away, and its position is beyond
///   them.
///
/// # What it is not
///
/// It is not Apache Kafka. It has no admin operations; topics are made by
/// [`create_topic`](Self::create_topic). A partition keeps 5 MiB of batches
/// ([`produce`](Self::produce) fails where more are lost). It aborts the
/// process when members of a classic group name different assignors. It knows
/// `max.poll.interval.ms` and does not act on it.
pub struct Broker {
    // In the order in which they must go: clients before the cluster.
    observers: Observers,
    cluster: Embedded,
    bootstrap: String,
    topics: Mutex<BTreeMap<String, i32>>,
}

/// A request that the broker has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The broker, from 1.
    pub broker: i32,
    /// Of what kind.
    pub api: ApiKey,
}

// ===== impl Broker =====

impl Broker {
    /// Starts the brokers of a configuration.
    ///
    /// # Errors
    ///
    /// When no port can be bound, or a topic cannot be made.
    pub fn start(config: BrokerConfig) -> Result<Self, BrokerFailure> {
        let cluster = Embedded::new(config.brokers)?;
        cluster.set_rebalance_delay(millis(config.rebalance_delay));
        cluster.set_consumer_heartbeat(millis(config.heartbeat));
        cluster.set_consumer_session(millis(config.session));
        let bootstrap = cluster.bootstrap();
        let observers = Observers::new(bootstrap.clone());
        let broker = Self { observers, cluster, bootstrap, topics: Mutex::default() };
        for (topic, partitions) in config.topics {
            broker.create_topic(&topic, partitions)?;
        }
        Ok(broker)
    }

    /// The addresses, as `bootstrap.servers` takes them.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Makes a topic.
    ///
    /// # Errors
    ///
    /// When it is there.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), BrokerFailure> {
        let code = self.cluster.create_topic(&ffi::text(topic)?, partitions);
        accepted("make a topic", code)?;
        self.topics().insert(topic.to_owned(), partitions);
        Ok(())
    }

    /// Writes records, and returns when all are written.
    ///
    /// Each goes to the partition that it names. What is written by one call
    /// makes few and large batches, which is how this broker is quick.
    ///
    /// # Errors
    ///
    /// When one is not written, or a partition has become too large and has
    /// lost its first records.
    pub fn produce(
        &self,
        topic: &str,
        records: impl IntoIterator<Item = NewRecord>,
    ) -> Result<(), BrokerFailure> {
        let partitions = self.partitions(topic)?;
        produce::produce(&self.bootstrap, topic, records)?;
        for partition in 0..partitions {
            let (start, _) = self.observers.watermarks(topic, partition)?;
            if start > 0 {
                let topic = topic.to_owned();
                return Err(BrokerFailure::Overflow { topic, partition, start });
            }
        }
        Ok(())
    }

    /// Commits offset 0 for each partition of a group that has no offset.
    ///
    /// Before the first member comes; see [what a test may
    /// assert](Self#what-a-test-may-assert).
    ///
    /// # Errors
    ///
    /// When the group has members.
    pub fn begin_group<'a>(
        &self,
        group: &str,
        topics: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), BrokerFailure> {
        for topic in topics {
            let committed = self.committed(group, topic)?.into_iter();
            let new = committed.filter_map(|(partition, at)| at.is_none().then_some(partition));
            self.observers.commit(group, topic, new.map(|partition| (partition, 0)))?;
        }
        Ok(())
    }

    /// Sets a group's committed offsets, of the partitions that are named.
    ///
    /// # Errors
    ///
    /// When the group has members.
    pub fn commit(
        &self,
        group: &str,
        topic: &str,
        offsets: impl IntoIterator<Item = (i32, i64)>,
    ) -> Result<(), BrokerFailure> {
        self.observers.commit(group, topic, offsets)
    }

    /// A group's committed offsets, of all partitions of a topic.
    ///
    /// # Errors
    ///
    /// When the broker does not answer.
    pub fn committed(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<BTreeMap<i32, Option<i64>>, BrokerFailure> {
        self.observers.committed(group, topic, self.partitions(topic)?)
    }

    /// The ends of all partitions of a topic: the offset of the next record.
    ///
    /// # Errors
    ///
    /// When the broker does not answer.
    pub fn end_offsets(&self, topic: &str) -> Result<BTreeMap<i32, i64>, BrokerFailure> {
        let end = |partition| Ok((partition, self.observers.watermarks(topic, partition)?.1));
        (0..self.partitions(topic)?).map(end).collect()
    }

    /// Waits until a group has committed the end of each partition of a topic.
    ///
    /// # Errors
    ///
    /// When it has not by `deadline`, or the broker does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn consumed(
        &self,
        group: &str,
        topic: &str,
        deadline: Duration,
    ) -> Result<(), NotConsumed> {
        let until = Instant::now() + deadline;
        loop {
            let ends = self.end_offsets(topic)?;
            let committed = self.committed(group, topic)?;
            let is_there = |(partition, end): (&i32, &i64)| {
                committed.get(partition).copied().flatten().unwrap_or_default() >= *end
            };
            if ends.iter().all(is_there) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(NotConsumed::Deadline { deadline, committed, ends });
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Answers the next requests of a kind with these errors, in order.
    ///
    /// Not every error suits: a real broker never answers a member of the
    /// consumer protocol with `IllegalGeneration`, and the client does not get
    /// over it here. For a member that is fenced, inject
    /// `FencedMemberEpoch` or `UnknownMemberId` in its
    /// [heartbeat](ApiKey::CONSUMER_GROUP_HEARTBEAT): the broker then drops it.
    pub fn fail_requests(&self, api: ApiKey, errors: &[ErrorCode]) {
        self.cluster.push_errors(api, errors);
    }

    /// Forgets the errors that were not given yet.
    pub fn clear_failures(&self, api: ApiKey) {
        self.cluster.clear_errors(api);
    }

    /// Takes a broker down: its connections are cut, new ones refused.
    ///
    /// Members of the consumer protocol lose their partitions at once, which
    /// is not so with Apache Kafka.
    ///
    /// # Errors
    ///
    /// When there is no such broker.
    pub fn take_down(&self, broker: i32) -> Result<(), BrokerFailure> {
        accepted("take a broker down", self.cluster.set_up(broker, false))
    }

    /// Brings a broker up again, at its address.
    ///
    /// # Errors
    ///
    /// When there is no such broker.
    pub fn bring_up(&self, broker: i32) -> Result<(), BrokerFailure> {
        accepted("bring a broker up", self.cluster.set_up(broker, true))
    }

    /// Delays the answers of a broker.
    ///
    /// # Errors
    ///
    /// When there is no such broker.
    pub fn set_round_trip(&self, broker: i32, time: Duration) -> Result<(), BrokerFailure> {
        accepted("delay a broker", self.cluster.set_round_trip(broker, millis(time)))
    }

    /// Makes a broker the coordinator of a group.
    ///
    /// # Errors
    ///
    /// When there is no such broker.
    pub fn set_coordinator(&self, group: &str, broker: i32) -> Result<(), BrokerFailure> {
        let code = self.cluster.set_coordinator(&ffi::text(group)?, broker);
        accepted("move a coordinator", code)
    }

    /// Lets a broker name another address to its clients: that of a proxy in
    /// front of it.
    ///
    /// Whoever connects to [`bootstrap`](Self::bootstrap) is told to go on
    /// there; give clients the proxy's address in its place.
    ///
    /// # Panics
    ///
    /// Never: an address is a text without zeros.
    pub fn advertise(&self, broker: i32, at: SocketAddr) {
        let host = CString::new(at.ip().to_string()).expect("an address has no zeros");
        self.cluster.advertise(broker, &host, at.port());
    }

    /// Forgets the requests that came, and remembers those that come.
    pub fn track_requests(&self) {
        self.cluster.track_requests();
    }

    /// The requests that came since [`track_requests`](Self::track_requests).
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.cluster.requests()
    }

    fn partitions(&self, topic: &str) -> Result<i32, BrokerFailure> {
        let unknown = || BrokerFailure::UnknownTopic { topic: topic.to_owned() };
        self.topics().get(topic).copied().ok_or_else(unknown)
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, i32>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

fn accepted(what: &'static str, code: ErrorCode) -> Result<(), BrokerFailure> {
    if code == ErrorCode::NoError { Ok(()) } else { Err(BrokerFailure::Refused { what, code }) }
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
