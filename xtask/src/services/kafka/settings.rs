//! The configuration of the brokers.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr, path::Path};

/// What Kafka's own defaults would not do for tests. The containers have the
/// same, see `docker-compose.yaml`.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    // A topic that was not made on purpose is a mistake in a test.
    ("auto.create.topics.enable", "false"),
    ("num.partitions", "8"),
    // Internal topics are made at first use: few partitions, little waiting.
    ("offsets.topic.num.partitions", "6"),
    ("transaction.state.log.num.partitions", "6"),
    // A group starts at once, and its members may be given up within seconds.
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    // Groups may go from one protocol to the other and back.
    ("group.consumer.migration.policy", "bidirectional"),
    // Compaction leaves its gaps while a test can wait for them.
    ("log.cleaner.backoff.ms", "500"),
];

/// What a cluster adds, so that a dead node is replaced within seconds.
const CLUSTER: &[(&str, &str)] = &[
    ("broker.session.timeout.ms", "4000"),
    ("broker.heartbeat.interval.ms", "1000"),
    ("controller.quorum.election.timeout.ms", "1000"),
    ("controller.quorum.fetch.timeout.ms", "2000"),
];

/// Where a node listens.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) clients: SocketAddr,
    pub(super) controller: SocketAddr,
    /// Further listeners: where each listens, and what it tells clients.
    pub(super) proxied: Vec<(SocketAddr, SocketAddr)>,
}

/// The `server.properties` of node `index`.
pub(super) fn properties(
    nodes: &[Addresses],
    index: usize,
    data: &Path,
    extra: &[(String, String)],
) -> String {
    let Addresses { clients, controller, proxied } = &nodes[index];
    let voters: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| format!("{}@{}", index + 1, node.controller))
        .collect();
    let mut listeners = format!("CLIENTS://{clients},CONTROLLER://{controller}");
    let mut advertised = format!("CLIENTS://{clients}");
    let mut protocols = "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
    for (number, (listens, tells)) in proxied.iter().enumerate() {
        let name = format!("PROXIED{number}");
        write!(listeners, ",{name}://{listens}").expect("a string takes everything");
        write!(advertised, ",{name}://{tells}").expect("a string takes everything");
        write!(protocols, ",{name}:PLAINTEXT").expect("a string takes everything");
    }
    let (replicas, in_sync) = if nodes.len() < 3 { ("1", "1") } else { ("3", "2") };

    let mut properties: BTreeMap<&str, String> = BTreeMap::new();
    let mut set = |name, value: &str| properties.insert(name, value.to_owned());
    set("process.roles", "broker,controller");
    set("node.id", &(index + 1).to_string());
    set("controller.quorum.voters", &voters.join(","));
    set("controller.listener.names", "CONTROLLER");
    set("inter.broker.listener.name", "CLIENTS");
    set("listeners", &listeners);
    set("advertised.listeners", &advertised);
    set("listener.security.protocol.map", &protocols);
    set("log.dirs", &data.display().to_string());
    set("default.replication.factor", replicas);
    set("min.insync.replicas", in_sync);
    set("offsets.topic.replication.factor", replicas);
    set("transaction.state.log.replication.factor", replicas);
    set("transaction.state.log.min.isr", in_sync);
    set("share.coordinator.state.topic.replication.factor", replicas);
    set("share.coordinator.state.topic.min.isr", in_sync);
    let cluster = if nodes.len() < 3 { &[] } else { CLUSTER };
    for (name, value) in SETTINGS.iter().chain(cluster) {
        set(name, value);
    }
    for (name, value) in extra {
        set(name, value);
    }
    properties.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// Everything to one log, in one line each.
pub(super) const LOGGING: &str = "\
status = warn
appender.output.type = Console
appender.output.name = output
appender.output.layout.type = PatternLayout
appender.output.layout.pattern = %d{ISO8601} %p %c{1} - %m%n
# The whole configuration, three times over.
logger.configuration.name = org.apache.kafka.common.config.AbstractConfig
logger.configuration.level = warn
rootLogger.level = info
rootLogger.appenderRef.output.ref = output
";

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, path::Path};

    use super::{Addresses, SETTINGS, properties};

    fn node(port: u16) -> Addresses {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Addresses { clients: address(port), controller: address(port + 1), proxied: Vec::new() }
    }

    #[test]
    fn a_single_node_replicates_nothing() {
        let text = properties(&[node(10)], 0, Path::new("data"), &[]);
        assert!(text.contains("offsets.topic.replication.factor=1\n"), "{text}");
        assert!(text.contains("controller.quorum.voters=1@127.0.0.1:11\n"), "{text}");
    }

    #[test]
    fn three_nodes_vote_and_replicate() {
        let text = properties(&[node(10), node(20), node(30)], 1, Path::new("data"), &[]);
        let voters = "controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:21,3@127.0.0.1:31\n";
        assert!(text.contains(voters), "{text}");
        assert!(text.contains("node.id=2\n"), "{text}");
        assert!(text.contains("offsets.topic.replication.factor=3\n"), "{text}");
        assert!(text.contains("broker.session.timeout.ms=4000\n"), "{text}");
    }

    #[test]
    fn a_proxied_listener_tells_clients_of_the_proxy() {
        let mut node = node(10);
        node.proxied = vec![(([127, 0, 0, 1], 12).into(), ([127, 0, 0, 1], 99).into())];
        let text = properties(&[node], 0, Path::new("data"), &[]);
        assert!(text.contains(",PROXIED0://127.0.0.1:12\n"), "{text}");
        let advertised = "advertised.listeners=CLIENTS://127.0.0.1:10,PROXIED0://127.0.0.1:99\n";
        assert!(text.contains(advertised), "{text}");
    }

    #[test]
    fn what_a_test_sets_wins() {
        let extra = [("num.partitions".to_owned(), "1".to_owned())];
        let text = properties(&[node(10)], 0, Path::new("data"), &extra);
        assert!(text.contains("num.partitions=1\n") && !text.contains("num.partitions=8"));
    }

    #[test]
    fn containers_have_the_same_settings() {
        let compose = include_str!("../../../../docker-compose.yaml");
        for (name, value) in SETTINGS {
            let variable = name.to_uppercase().replace('.', "_");
            let line = format!("KAFKA_{variable}: \"{value}\"\n");
            assert!(compose.contains(&line), "docker-compose.yaml lacks {line}");
        }
    }
}
