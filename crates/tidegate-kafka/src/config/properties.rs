//! Properties of librdkafka: ours, the application's, and what is secret.

use std::{collections::BTreeMap, fmt};

use rdkafka::ClientConfig;

/// Ours where the application says nothing, and why they differ from the
/// client's.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("client.id", "tidegate"),
    // Positions are resolved by the driver, so nothing is made by looking.
    ("allow.auto.create.topics", "false"),
    ("isolation.level", "read_committed"),
    // The client's 10 s outlast a session: membership is lost in each longer outage.
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "500"),
    // The client's 1 s lets a small queue run dry.
    ("fetch.queue.backoff.ms", "10"),
    // A bound for each partition, prefetched, which the last fetch may overshoot
    // by `fetch.message.max.bytes`; all else is bounded by credits.
    ("queued.min.messages", "10000"),
    ("queued.max.messages.kbytes", "4096"),
    // How late an end of partition is seen, and how long a retained partition
    // stands still after a rebalance.
    ("fetch.wait.max.ms", "50"),
    // Half-open connections.
    ("socket.keepalive.enable", "true"),
    ("max.poll.interval.ms", "300000"),
    ("log.connection.close", "false"),
];

/// Ours in the classic protocols only: the consumer protocol has the broker's.
pub(super) const CLASSIC_DEFAULTS: &[(&str, &str)] = &[
    ("session.timeout.ms", "45000"),
    // How soon a rebalance is noticed: the client's 3 s are what a moved
    // partition waits.
    ("heartbeat.interval.ms", "100"),
];

/// What the application may not set otherwise, since a guarantee rests on it.
pub(super) const FIXED: &[(&str, &str, &str)] = &[
    (
        "enable.auto.commit",
        "false",
        "the client commits positions, and several at a time; only the frontier may be committed",
    ),
    ("enable.auto.offset.store", "false", "the client stores what it handed out, finished or not"),
    (
        "enable.partition.eof",
        "true",
        "without ends of partitions the frontier stops before transaction markers",
    ),
    (
        "auto.offset.reset",
        "error",
        "a position outside the log would be reset in silence; choose a start with `KafkaConfig::start`",
    ),
];

/// What may be printed of the properties that begin as secrets do.
const HARMLESS: &[&str] = &[
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.method",
    "sasl.username",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.keystore.location",
];

/// How the names of properties begin that hold secrets. A name that is misspelt
/// behind this, and is refused for it, has a secret for a value as well.
const SECRET_PREFIXES: &[&str] = &["sasl", "ssl"];

/// What the name of a secret holds elsewhere.
const SECRET_WORDS: &[&str] = &["pass", "secret", "key", "token", "credential"];

/// What another client on the same brokers needs.
const CONNECTION: &[&str] = &["bootstrap.servers", "client.id", "metadata.broker.list"];
const CONNECTION_PREFIXES: &[&str] =
    &["security.", "sasl.", "ssl.", "enable.ssl", "enable.sasl", "socket.", "broker.address."];

/// What the application has set.
#[derive(Clone, Default)]
pub(super) struct Properties(BTreeMap<String, String>);

impl Properties {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn plain_client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let is_wanted = |name: &str| {
            CONNECTION.contains(&name)
                || CONNECTION_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, value) in self.iter().filter(|(name, _)| is_wanted(name)) {
            config.set(name, value);
        }
        config
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

/// A value as it may be printed.
pub(super) fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    let name = name.to_ascii_lowercase();
    let is_secret = SECRET_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SECRET_WORDS.iter().any(|word| name.contains(word));
    if is_secret && !HARMLESS.contains(&name.as_str()) { "***" } else { value }
}
