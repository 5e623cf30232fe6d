use std::time::Duration;

/// How an embedded broker is set up.
///
/// The defaults make rebalances quick, and were found by running them; the
/// broker's own are those of a real one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerConfig {
    /// How many brokers there are, with the ids 1, 2 and so on. One by
    /// default.
    pub brokers: i32,
    /// The topics that are there from the start, with their partitions.
    pub topics: Vec<(String, i32)>,
    /// How often members of the consumer protocol report; 100 ms by default.
    /// A join or a leave takes effect within a few of them.
    pub heartbeat: Duration,
    /// How long a member of the consumer protocol may be silent; 3 s by
    /// default.
    ///
    /// Below that, a pause of the machine may fence a member. A test that
    /// asserts exactly what a member did takes 30 s, so that load does not.
    pub session: Duration,
    /// How long an empty classic group waits for more members; 100 ms by
    /// default.
    pub rebalance_delay: Duration,
}

// ===== impl BrokerConfig =====

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            brokers: 1,
            topics: Vec::new(),
            heartbeat: Duration::from_millis(100),
            session: Duration::from_secs(3),
            rebalance_delay: Duration::from_millis(100),
        }
    }
}

impl BrokerConfig {
    /// Has a topic from the start.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<String>, partitions: i32) -> Self {
        self.topics.push((topic.into(), partitions));
        self
    }

    /// Sets how long a member of the consumer protocol may be silent.
    #[must_use]
    pub fn with_session(self, session: Duration) -> Self {
        Self { session, ..self }
    }

    /// Sets how often members of the consumer protocol report.
    #[must_use]
    pub fn with_heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }
}
