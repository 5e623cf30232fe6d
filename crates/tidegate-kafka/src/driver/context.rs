//! What the client calls us with. It is stored, and looked at by the poll loop.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::KafkaError,
    types::RDKafkaRespErr,
};
use serde::Deserialize;
use tidegate_core::TopicPartition;
use tokio::time::Instant;

/// The client's context: callbacks only store what they are told.
#[derive(Default)]
pub(crate) struct Context {
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    rebalances: VecDeque<Rebalance>,
    statistics: Option<(Instant, Statistics)>,
    errors: VecDeque<String>,
}

/// A rebalance event, which is answered later.
pub(crate) struct Rebalance {
    pub(crate) assign: bool,
    pub(crate) list: TopicPartitionList,
    /// Whether the client says that the partitions are lost.
    pub(crate) lost: bool,
    /// When the client told.
    pub(crate) at: Instant,
}

/// What the driver looks at in the client's statistics.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Statistics {
    #[serde(default)]
    brokers: BTreeMap<String, Broker>,
    #[serde(default)]
    topics: BTreeMap<String, Topic>,
    cgrp: Option<Group>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    nodeid: i32,
    state: String,
    #[serde(default)]
    req_timeouts: u64,
}

#[derive(Debug, Deserialize)]
struct Topic {
    partitions: BTreeMap<i32, Leader>,
}

#[derive(Debug, Deserialize)]
struct Leader {
    leader: i32,
}

#[derive(Debug, Deserialize)]
struct Group {
    state: String,
    join_state: String,
}

/// How the group stands, by fresh statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// Whether the coordinator is connected; unknown without fresh statistics.
    pub(crate) up: Option<bool>,
    /// Whether the coordinator holds our request to join.
    pub(crate) rejoining: bool,
}

// Statistics come each second; what is older than this says nothing of now.
const FRESH: Duration = Duration::from_millis(2_500);

// ===== impl Context =====

impl Context {
    pub(crate) fn next_rebalance(&self) -> Option<Rebalance> {
        self.told().rebalances.pop_front()
    }

    /// The texts of errors since the last call.
    pub(crate) fn errors(&self) -> VecDeque<String> {
        std::mem::take(&mut self.told().errors)
    }

    pub(crate) fn group_state(&self) -> GroupState {
        let told = self.told();
        let Some((at, statistics)) = &told.statistics else { return GroupState::default() };
        let Some(group) = &statistics.cgrp else { return GroupState::default() };
        if at.elapsed() > FRESH {
            return GroupState::default();
        }
        let up = group.state == "up";
        let joining = matches!(group.join_state.as_str(), "wait-join" | "wait-sync");
        GroupState { up: Some(up), rejoining: up && joining }
    }

    /// Whether the leader of a partition is connected, as far as is known.
    pub(crate) fn leader_is_up(&self, partition: &TopicPartition) -> bool {
        let told = self.told();
        let Some((_, statistics)) = &told.statistics else { return false };
        let topic = statistics.topics.get(&*partition.topic);
        let leader = topic.and_then(|it| it.partitions.get(&partition.partition));
        let leader = leader.map_or(-1, |it| it.leader);
        let is_it = |broker: &Broker| leader < 0 || broker.nodeid == leader;
        statistics.brokers.values().any(|broker| broker.state == "UP" && is_it(broker))
    }

    /// How many requests the client has given up, by all that is known.
    pub(crate) fn timeouts(&self) -> u64 {
        let told = self.told();
        let brokers = told.statistics.iter().flat_map(|(_, it)| it.brokers.values());
        brokers.map(|broker| broker.req_timeouts).sum()
    }

    // Nothing that runs under the lock can panic half way.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => {
                tracing::warn!(target: "librdkafka", facility, "{message}");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "librdkafka", facility, "{message}");
            }
            RDKafkaLogLevel::Debug => {
                tracing::debug!(target: "librdkafka", facility, "{message}");
            }
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match serde_json::from_slice(statistics) {
            Ok(statistics) => self.told().statistics = Some((Instant::now(), statistics)),
            Err(error) => tracing::warn!(%error, "the client's statistics cannot be read"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.told().errors.push_back(format!("{error}: {reason}"));
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let assign = event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let (list, lost) = (list.clone(), consumer.assignment_lost());
        self.told().rebalances.push_back(Rebalance { assign, list, lost, at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientContext as _;
    use tidegate_core::TopicPartition;

    use super::{Context, GroupState};

    fn told(statistics: &str) -> Context {
        let context = Context::default();
        context.stats_raw(statistics.as_bytes());
        context
    }

    #[track_caller]
    fn check(group: &str, up: Option<bool>, rejoining: bool) {
        let context = told(&format!(r#"{{"name":"x","cgrp":{{{group}}}}}"#));
        assert_eq!(context.group_state(), GroupState { up, rejoining });
    }

    #[test]
    fn the_group_is_joined_again_while_the_coordinator_holds_the_request() {
        check(r#""state":"up","join_state":"steady""#, Some(true), false);
        check(r#""state":"up","join_state":"wait-join""#, Some(true), true);
        check(r#""state":"up","join_state":"wait-sync""#, Some(true), true);
        check(r#""state":"wait-coord","join_state":"wait-join""#, Some(false), false);
        assert_eq!(Context::default().group_state(), GroupState::default());
        assert_eq!(told("{}").group_state(), GroupState::default());
    }

    #[test]
    fn requests_that_were_given_up_are_counted_over_all_brokers() {
        let context = told(
            r#"{"brokers":{"a":{"nodeid":1,"state":"UP","req_timeouts":2},
                "b":{"nodeid":1,"state":"UP","req_timeouts":1},"c":{"nodeid":2,"state":"UP"}}}"#,
        );
        assert_eq!((context.timeouts(), Context::default().timeouts()), (3, 0));
    }

    #[test]
    fn a_leader_is_up_when_its_broker_is() {
        let context = told(
            r#"{"brokers":{"a":{"nodeid":1,"state":"UP"},"b":{"nodeid":2,"state":"DOWN"}},
                "topics":{"t":{"partitions":{"0":{"leader":1},"1":{"leader":2},"-1":{"leader":-1}}}}}"#,
        );
        let is_up = |partition| context.leader_is_up(&TopicPartition::new("t", partition));
        assert_eq!((is_up(0), is_up(1)), (true, false));
        assert!(is_up(7), "of what is not known, any broker may be the leader");
        assert!(!Context::default().leader_is_up(&TopicPartition::new("t", 0)));
    }
}
