use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use tidegate::{
    kafka::{KafkaConfig, OnFailure, StartPosition},
    sql::DatabaseOptions,
};

/// A worker of the fault lab.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "tidegate-lab-worker")]
pub struct Arguments {
    /// Its name in effects and reports.
    #[arg(long)]
    pub name: String,
    /// Where brokers are found.
    #[arg(long)]
    pub kafka: String,
    /// The group.
    #[arg(long)]
    pub group: String,
    /// The topics.
    #[arg(long, required = true)]
    pub topic: Vec<String>,
    /// How the group's partitions are assigned.
    #[arg(long, value_enum, default_value_t = Protocol::Consumer)]
    pub protocol: Protocol,
    /// The static identity.
    #[arg(long)]
    pub instance: Option<String>,
    /// The database.
    #[arg(long)]
    #[serde(skip)]
    pub database: String,
    /// The generation of the namespace `main`.
    #[arg(long, default_value_t = 1)]
    pub generation: i64,
    /// Layers to leave out.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub without: Vec<LayerName>,
    /// Puts the epoch guard in the stack.
    #[arg(long)]
    pub guard: bool,
    /// What is wrong with it, on purpose.
    #[arg(long, value_enum)]
    pub sabotage: Option<Sabotage>,
    /// Runs each delivery in a task of its own, which outlives the stack.
    #[arg(long)]
    pub detached: bool,
    /// Overwrites an account's balance with the one that it has in memory.
    #[arg(long)]
    pub overwrites: bool,
    /// The lanes of a queue.
    #[arg(long, default_value_t = 1)]
    pub lanes: usize,
    /// The records of a batch, at most.
    #[arg(long, default_value_t = 50)]
    pub batch: usize,
    /// How long an effect takes for each record, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub work: u64,
    /// The session timeout in the classic protocols, in milliseconds.
    #[arg(long, default_value_t = 6_000)]
    pub session: u64,
    /// `max.poll.interval.ms`.
    #[arg(long, default_value_t = 60_000)]
    pub poll_interval: u64,
    /// How often frontiers are committed, in milliseconds.
    #[arg(long, default_value_t = 200)]
    pub commit_interval: u64,
    /// The deadline of a drain, in milliseconds.
    #[arg(long)]
    pub drain: Option<u64>,
    /// The connections to the database.
    #[arg(long, default_value_t = 4)]
    pub connections: u32,
    /// How long a transaction may stand idle, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    pub idle_transaction: u64,
    /// Where a partition starts for which nothing is committed.
    #[arg(long, value_enum, default_value_t = Start::Earliest)]
    pub start: Start,
    /// Properties of librdkafka, each as `name=value`.
    #[arg(long)]
    pub property: Vec<String>,
    /// How often the ids of topics are looked at, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    pub topic_check: u64,
    /// How long a partition may give no sign of life, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    pub stall: u64,
}

/// Where a partition starts for which nothing is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// At the beginning of its log.
    Earliest,
    /// At its end.
    Latest,
    /// Nowhere.
    Error,
}

/// How a group's partitions are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// `range`: each rebalance revokes everything.
    Eager,
    /// `cooperative-sticky`: what moves is revoked.
    Cooperative,
    /// `group.protocol=consumer`: the broker assigns.
    Consumer,
}

/// Layers that a stack may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerName {
    /// No delta is put in order.
    Sequencer,
    /// What cannot succeed stops its partition.
    DeadLetters,
}

/// What is wrong with a worker, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sabotage {
    /// It commits the highest offset that is finished, whatever lies below.
    HighestFinished,
    /// Its transactions mark nothing.
    NothingMarked,
    /// Its effects are made in another transaction than the markers, and later.
    MarkerFirst,
    /// It commits offsets before the effects are made.
    CompletedEarly,
    /// It takes a record whose work was cancelled for a complete one.
    CancelledCompleted,
}

// ===== impl Protocol =====

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Cooperative, Self::Consumer];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Cooperative => "cooperative",
            Self::Consumer => "consumer",
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// ===== impl Arguments =====

impl Arguments {
    /// The command line that these arguments are read from.
    #[must_use]
    pub fn command_line(&self) -> Vec<String> {
        let mut line = Vec::new();
        let mut option = |name: &str, value: String| line.push(format!("--{name}={value}"));
        option("name", self.name.clone());
        option("kafka", self.kafka.clone());
        option("group", self.group.clone());
        for topic in &self.topic {
            option("topic", topic.clone());
        }
        option("protocol", self.protocol.to_string());
        if let Some(instance) = &self.instance {
            option("instance", instance.clone());
        }
        option("database", self.database.clone());
        option("generation", self.generation.to_string());
        for layer in &self.without {
            option("without", value_name(layer));
        }
        if let Some(sabotage) = &self.sabotage {
            option("sabotage", value_name(sabotage));
        }
        option("lanes", self.lanes.to_string());
        option("batch", self.batch.to_string());
        option("work", self.work.to_string());
        option("session", self.session.to_string());
        option("poll-interval", self.poll_interval.to_string());
        option("commit-interval", self.commit_interval.to_string());
        if let Some(drain) = &self.drain {
            option("drain", drain.to_string());
        }
        option("connections", self.connections.to_string());
        option("idle-transaction", self.idle_transaction.to_string());
        option("start", value_name(&self.start));
        option("topic-check", self.topic_check.to_string());
        option("stall", self.stall.to_string());
        for property in &self.property {
            option("property", property.clone());
        }
        let flags =
            [("guard", self.guard), ("detached", self.detached), ("overwrites", self.overwrites)];
        for (flag, given) in flags {
            if given {
                line.push(format!("--{flag}"));
            }
        }
        line
    }

    pub(super) fn has(&self, layer: LayerName) -> bool {
        !self.without.contains(&layer)
    }

    pub(super) fn topics(&self) -> Vec<String> {
        self.topic.clone()
    }

    pub(super) fn kafka_config(&self) -> KafkaConfig {
        let mut config = KafkaConfig::new(&self.kafka, &self.group)
            .property("client.id", &self.name)
            .property("max.poll.interval.ms", self.poll_interval.to_string())
            .commit_interval(Duration::from_millis(self.commit_interval))
            .topic_check(Some(Duration::from_millis(self.topic_check)))
            .stall_after(Duration::from_millis(self.stall))
            .start(match self.start {
                Start::Earliest => StartPosition::Earliest,
                Start::Latest => StartPosition::Latest,
                Start::Error => StartPosition::Error,
            })
            .on_failure(OnFailure::Retry {
                first: Duration::from_millis(200),
                longest: Duration::from_secs(2),
            });
        config = match self.protocol {
            Protocol::Consumer => config.property("group.protocol", "consumer"),
            Protocol::Eager => config.property("partition.assignment.strategy", "range"),
            Protocol::Cooperative => {
                config.property("partition.assignment.strategy", "cooperative-sticky")
            }
        };
        if self.protocol != Protocol::Consumer {
            config = config
                .property("session.timeout.ms", self.session.to_string())
                .property("heartbeat.interval.ms", "500");
        }
        if let Some(instance) = &self.instance {
            config = config.property("group.instance.id", instance);
        }
        for (name, value) in self.property.iter().filter_map(|it| it.split_once('=')) {
            config = config.property(name, value);
        }
        if let Some(drain) = self.drain {
            config = config.drain_deadline(Duration::from_millis(drain));
        }
        config
    }

    pub(super) fn database_options(&self) -> DatabaseOptions {
        let mut options =
            DatabaseOptions::new(&self.database).with_namespace("main", self.generation);
        options.max_connections = self.connections;
        options.idle_in_transaction_timeout = Duration::from_millis(self.idle_transaction);
        options.application_name = format!("tidegate-lab {}", self.name);
        options
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{Arguments, LayerName, Protocol, Sabotage, Start};

    #[test]
    fn a_command_line_says_all_that_there_is() {
        let line = ["x", "--name=a", "--kafka=k:1", "--group=g", "--topic=t", "--database=d"];
        let mut arguments = Arguments::parse_from(line);
        arguments.topic.push("u".to_owned());
        arguments.protocol = Protocol::Cooperative;
        arguments.instance = Some("i".to_owned());
        arguments.generation = 2;
        arguments.without = vec![LayerName::Sequencer, LayerName::DeadLetters];
        arguments.guard = true;
        arguments.sabotage = Some(Sabotage::NothingMarked);
        arguments.detached = true;
        arguments.drain = Some(7);
        arguments.start = Start::Latest;
        arguments.idle_transaction = 5;
        arguments.topic_check = 6;
        arguments.stall = 8;
        arguments.property = vec!["debug=cgrp".to_owned()];
        let line = ["x".to_owned()].into_iter().chain(arguments.command_line());
        let again = Arguments::parse_from(line);
        assert_eq!(format!("{arguments:?}"), format!("{again:?}"));
    }
}
