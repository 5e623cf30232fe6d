//! Metric names are public API, so a test holds them.
#![cfg(feature = "metrics")]

mod support;

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::support::{Journal, Member, broker, config, consumed, takes};

// One thread, so that the recorder is there where the source begins.
#[tokio::test]
async fn a_member_records_what_it_reads_and_commits() {
    let recorder = DebuggingRecorder::new();
    let recorded = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = broker(2, 10);
    let journal = Journal::default();
    let member = Member::start(config(&broker), &journal, takes(0));
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);

    let mut values = BTreeMap::new();
    for (key, unit, description, value) in recorded.snapshot().into_vec() {
        let (_, key) = key.into_parts();
        let labels: Vec<_> =
            key.labels().map(|it| format!("{{{}={}}}", it.key(), it.value())).collect();
        let name = format!("{}{}", key.name(), labels.concat());
        assert!(unit.is_some() && description.is_some(), "{name} is described");
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(level) => *level,
            DebugValue::Histogram(samples) => samples.len() as f64,
        };
        values.insert(name.trim_start_matches("tidegate_kafka_").to_owned(), value);
    }
    let exact = [
        ("bytes_total", 20.0),
        ("client_errors_total", 0.0),
        ("clients_replaced_total", 0.0),
        ("commits_total{result=failed}", 0.0),
        ("commits_total{result=lost}", 0.0),
        ("commits_total{result=stale}", 0.0),
        ("drains_total{end=deadline}", 0.0),
        ("holes", 0.0),
        ("idle_members", 0.0),
        ("in_flight_bytes", 0.0),
        ("in_flight_records", 0.0),
        ("lag_records", 0.0),
        ("partitions_assigned_total", 2.0),
        ("partitions_lost_total", 0.0),
        ("partitions_revoked_total", 2.0),
        ("rebalance_seconds{kind=lost}", 0.0),
        ("rebalances_total{kind=lost}", 0.0),
        ("records_total", 20.0),
        ("stall_probes_total", 0.0),
        ("stops_total{class=fatal}", 0.0),
        ("stops_total{class=fenced}", 0.0),
        ("stops_total{class=poison}", 0.0),
        ("stops_total{class=transient}", 0.0),
        ("suspensions_total", 0.0),
        ("unconfirmed_records", 0.0),
    ];
    for (name, expected) in exact {
        assert_eq!(values.remove(name), Some(expected), "{name}");
    }
    // How often these happen is the broker's to say.
    let often = [
        "commit_seconds",
        "commits_total{result=accepted}",
        "drain_seconds",
        "drains_total{end=finished}",
        "poll_interval_seconds",
        "rebalance_seconds{kind=assign}",
        "rebalance_seconds{kind=revoke}",
        "rebalances_total{kind=assign}",
        "rebalances_total{kind=revoke}",
    ];
    for name in often {
        assert!(values.remove(name) > Some(0.0), "{name}");
    }
    assert!(values.remove("proof_age_seconds").is_some());
    for state in [
        "starting",
        "running",
        "retrying",
        "database down",
        "waiting for a gap",
        "draining",
        "suspended",
        "stopped",
    ] {
        assert!(values.remove(&format!("partitions{{state={state}}}")).is_some(), "{state}");
    }
    assert_eq!(values, BTreeMap::new(), "no other names");
}
