use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;

use super::{ConfigError, KafkaConfig};

fn config() -> KafkaConfig {
    KafkaConfig::new("127.0.0.1:9092", "group")
}

#[track_caller]
fn check(config: &KafkaConfig, expected: &str) {
    assert_eq!(config.check().unwrap_err().to_string(), expected);
}

#[test]
fn defaults_are_accepted_by_the_client() {
    config().check().unwrap();
    config().property("group.protocol", "consumer").check().unwrap();
    config().property("partition.assignment.strategy", "cooperative-sticky").check().unwrap();
    config().property("partition.assignment.strategy", "range,roundrobin").check().unwrap();
}

// C17: the client's own commits are of its position.
#[test]
fn what_breaks_a_guarantee_is_refused_with_the_reason() {
    check(
        &config().property("enable.auto.commit", "true"),
        "`enable.auto.commit` has to be `false`, not `true`: the client commits positions, and \
         several at a time; only the frontier may be committed",
    );
    check(
        &config().property("auto.offset.reset", "latest"),
        "`auto.offset.reset` has to be `error`, not `latest`: a position outside the log would be \
         reset in silence; choose a start with `KafkaConfig::start`",
    );
    check(
        &config().property("partition.assignment.strategy", "cooperative-sticky,range"),
        "`partition.assignment.strategy` = `cooperative-sticky,range` mixes eager and cooperative \
         assignors: choose `range`, `roundrobin` or both, or `cooperative-sticky` alone",
    );
    check(
        &config().property("statistics.interval.ms", "0"),
        "`statistics.interval.ms` = `0`: the driver sees by the statistics whether a member \
         rejoins, and whether a partition stalls: it has to be between 1 and 1000",
    );
}

#[test]
fn what_is_fixed_may_be_repeated() {
    config().property("enable.auto.commit", "false").check().unwrap();
}

#[test]
fn a_drain_that_cannot_fit_is_refused() {
    let drain = Duration::from_secs(6);
    let config = config().property("max.poll.interval.ms", "10000");
    let config = config.property("session.timeout.ms", "9000").drain_deadline(drain);
    let poll_interval = Duration::from_secs(10);
    assert_eq!(config.check().unwrap_err(), ConfigError::DrainTooLong { drain, poll_interval });
}

#[test]
fn a_session_has_room_for_its_heartbeats() {
    check(
        &config().property("session.timeout.ms", "250"),
        "a session of 250ms is too short for heartbeats each 100ms: it has to be three times as long \
         at least",
    );
}

#[test]
fn the_group_is_not_a_property() {
    check(
        &config().property("group.id", "other"),
        "`group.id` is not set as a property: it is the second argument of `KafkaConfig::new`",
    );
    check(&KafkaConfig::new("127.0.0.1:9092", ""), "`group.id` = ``: a group has a name");
}

#[test]
fn what_the_client_logs_is_heard_without_the_log_crate() {
    let level = |config: KafkaConfig| config.settings().expect("it is right").client.log_level;
    assert!(matches!(level(config()), RDKafkaLogLevel::Info));
    assert!(matches!(level(config().property("debug", "cgrp")), RDKafkaLogLevel::Debug));
}

#[test]
fn a_misspelt_property_is_named() {
    let error = config().property("fetch.wait.maximum.ms", "1").check().unwrap_err().to_string();
    assert!(error.contains("fetch.wait.maximum.ms"), "{error}");
}

#[test]
fn no_secret_is_printed() {
    let config = config().property("sasl.password", "hunter2").property("ssl.key.pem", "hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
    let wrong = config.property("security.protocol", "no-such-protocol");
    let error = wrong.check().unwrap_err();
    assert!(!format!("{error:?} {error}").contains("hunter2"));
}

#[test]
fn no_secret_is_printed_where_its_name_is_wrong() {
    for name in ["sasl.pasword", "SASL.PASSWORD", "my.password", "ssl.key.pme"] {
        let error = config().property(name, "hunter2").check().unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}

#[test]
fn what_is_harmless_is_printed() {
    let config = config().property("sasl.username", "ann").property("fetch.min.bytes", "9");
    let shown = format!("{config:?}");
    assert!(shown.contains("ann") && shown.contains("\"9\""), "{shown}");
}

#[test]
fn the_properties_of_another_client_are_those_of_the_connection() {
    let config =
        config().property("security.protocol", "plaintext").property("fetch.min.bytes", "9");
    let client = config.plain_client();
    assert_eq!(client.get("security.protocol"), Some("plaintext"));
    assert_eq!(client.get("bootstrap.servers"), Some("127.0.0.1:9092"));
    assert_eq!(client.get("fetch.min.bytes"), None);
}
