mod check;
mod properties;

use std::{fmt, time::Duration};

use rdkafka::ClientConfig;

pub use self::check::ConfigError;
pub(crate) use self::check::{GroupProtocol, Session, Settings};
use self::properties::Properties;

/// How a [`KafkaSource`](crate::KafkaSource) reads, works and commits.
///
/// Every property of librdkafka passes through [`property`](Self::property).
/// What would break a guarantee is refused when the source is made, with the
/// reason and the way out.
///
/// ```
/// use std::time::Duration;
/// use tidegate_kafka::KafkaConfig;
///
/// let config = KafkaConfig::new("127.0.0.1:9092", "ledger")
///     .property("group.protocol", "consumer")
///     .commit_interval(Duration::from_millis(500));
/// ```
///
/// | setting | default |
/// | --- | --- |
/// | [`start`](Self::start) | the beginning of the log |
/// | [`on_failure`](Self::on_failure) | again after 1 s, doubling up to 60 s |
/// | [`commit_interval`](Self::commit_interval) | 1 s |
/// | [`drain_deadline`](Self::drain_deadline) | a third of the session timeout, at most 10 s and half of `max.poll.interval.ms` |
/// | [`in_flight`](Self::in_flight) | 4 000 records or 8 MiB a partition |
/// | [`in_flight_in_all`](Self::in_flight_in_all) | 512 MiB |
/// | [`unconfirmed`](Self::unconfirmed) | 100 000 records a partition |
/// | [`topic_check`](Self::topic_check) | every 30 s |
/// | [`stall_after`](Self::stall_after) | 10 s |
/// | [`lookup_deadline`](Self::lookup_deadline) | 10 s |
/// | [`close_deadline`](Self::close_deadline) | 10 s |
/// | [`group_session`](Self::group_session) | read from the broker |
#[derive(Clone)]
pub struct KafkaConfig {
    properties: Properties,
    group: String,
    start: StartPosition,
    on_failure: OnFailure,
    commit_interval: Duration,
    drain_deadline: Option<Duration>,
    in_flight: (usize, usize),
    in_flight_in_all: usize,
    unconfirmed: usize,
    topic_check: Option<Duration>,
    stall_after: Duration,
    lookup_deadline: Duration,
    close_deadline: Duration,
    group_session: Option<(Duration, Duration)>,
}

/// Where a partition starts for which the group has committed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// At the beginning of its log.
    #[default]
    Earliest,
    /// At its end: what is there already is not read.
    Latest,
    /// Nowhere: the partition stops and says so.
    Error,
}

/// What a partition that fails does to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It stops, leaves the others running, and is tried again after a pause,
    /// which doubles from `first` up to `longest` while it fails again.
    Retry {
        /// The first pause.
        first: Duration,
        /// The longest one.
        longest: Duration,
    },
    /// The source drains, and ends with the error.
    End,
}

// ===== impl KafkaConfig =====

impl KafkaConfig {
    /// Creates a configuration for a member of `group`, which finds its
    /// brokers by `bootstrap`, as `host:port`, or several of them with commas
    /// in between.
    pub fn new(bootstrap: impl Into<String>, group: impl Into<String>) -> Self {
        let (bootstrap, group) = (bootstrap.into(), group.into());
        let mut properties = Properties::default();
        properties.set("bootstrap.servers", bootstrap);
        Self {
            properties,
            group,
            start: StartPosition::default(),
            on_failure: OnFailure::default(),
            commit_interval: Duration::from_secs(1),
            drain_deadline: None,
            in_flight: (4_000, 8 << 20),
            in_flight_in_all: 512 << 20,
            unconfirmed: 100_000,
            topic_check: Some(Duration::from_secs(30)),
            stall_after: Duration::from_secs(10),
            lookup_deadline: Duration::from_secs(10),
            close_deadline: Duration::from_secs(10),
            group_session: None,
        }
    }

    /// Sets a property of librdkafka.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.set(name, value);
        self
    }

    /// Sets where a partition starts for which nothing is committed.
    #[must_use]
    pub fn start(self, start: StartPosition) -> Self {
        Self { start, ..self }
    }

    /// Sets what a partition that fails does to the rest.
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        Self { on_failure, ..self }
    }

    /// Sets how often frontiers that moved are committed.
    #[must_use]
    pub fn commit_interval(self, commit_interval: Duration) -> Self {
        Self { commit_interval, ..self }
    }

    /// Sets how long running batches of a revoked partition may go on.
    #[must_use]
    pub fn drain_deadline(self, drain_deadline: Duration) -> Self {
        Self { drain_deadline: Some(drain_deadline), ..self }
    }

    /// Bounds what one partition has read and not answered, in records and in
    /// bytes of keys, payloads and headers.
    ///
    /// A record is counted from when it is taken from the client until its
    /// response is done. The bound in bytes is exceeded by at most what the
    /// client holds for the partition, `queued.max.messages.kbytes`.
    #[must_use]
    pub fn in_flight(self, records: usize, bytes: usize) -> Self {
        Self { in_flight: (records, bytes), ..self }
    }

    /// Bounds the bytes that all partitions have read and not answered.
    ///
    /// Each partition has an equal share of it, so that one that is full
    /// blocks none but itself; and never less than one record.
    ///
    /// Beside it, the client holds `queued.max.messages.kbytes` (4 MiB) for each
    /// partition, which it overshoots by one fetch, `fetch.message.max.bytes`
    /// (1 MiB): what a member may hold in all is 512 MiB, and 5 MiB for each
    /// partition.
    #[must_use]
    pub fn in_flight_in_all(self, bytes: usize) -> Self {
        Self { in_flight_in_all: bytes, ..self }
    }

    /// Bounds how many records of a partition are finished and not confirmed
    /// as committed: what a crash makes the next owner read again.
    #[must_use]
    pub fn unconfirmed(self, records: usize) -> Self {
        Self { unconfirmed: records, ..self }
    }

    /// Sets how often the ids of topics are looked at: a topic that was deleted
    /// and made anew under a running member stops its partitions. `None` never
    /// looks, also not when partitions start.
    #[must_use]
    pub fn topic_check(self, every: Option<Duration>) -> Self {
        Self { topic_check: every, ..self }
    }

    /// Sets after how long without a sign of life a partition is probed.
    ///
    /// The group is looked at as well, each time that three times as long has
    /// passed, and earlier after a request without an answer: this member may
    /// have missed which partitions it was given, or is to give up.
    #[must_use]
    pub fn stall_after(self, stall_after: Duration) -> Self {
        Self { stall_after, ..self }
    }

    /// Sets how long an assignment waits for the positions of all its
    /// partitions. What is not resolved by then is resolved later, without
    /// holding up the others.
    #[must_use]
    pub fn lookup_deadline(self, lookup_deadline: Duration) -> Self {
        Self { lookup_deadline, ..self }
    }

    /// Sets how long the consumer may take to close.
    #[must_use]
    pub fn close_deadline(self, close_deadline: Duration) -> Self {
        Self { close_deadline, ..self }
    }

    /// Says what session timeout and heartbeat interval the group has under the
    /// consumer protocol, in place of asking the broker.
    ///
    /// They are the broker's: `consumer.session.timeout.ms` and
    /// `consumer.heartbeat.interval.ms` of the group. A session timeout that is
    /// longer than the broker's makes leases live too long.
    #[must_use]
    pub fn group_session(self, session: Duration, heartbeat: Duration) -> Self {
        Self { group_session: Some((session, heartbeat)), ..self }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Checks the configuration as [`KafkaSource::new`](crate::KafkaSource::new) does.
    ///
    /// # Errors
    ///
    /// When a property breaks a guarantee, or librdkafka refuses it.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.settings().map(drop)
    }

    /// Where brokers are found.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        self.properties.get("bootstrap.servers").unwrap_or_default()
    }

    /// The properties for another client on the same brokers: security and
    /// addresses, without what is the consumer's.
    pub(crate) fn plain_client(&self) -> ClientConfig {
        self.properties.plain_client()
    }
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("group", &self.group)
            .field("properties", &self.properties)
            .field("start", &self.start)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

// ===== impl OnFailure =====

impl Default for OnFailure {
    fn default() -> Self {
        Self::Retry { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

#[cfg(test)]
mod tests;
