//! The oracle's readers, over the embedded broker and a SQLite file.

#![cfg(all(feature = "broker", feature = "oracle"))]

use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::install_default_drivers};
use tempfile::TempDir;
use tidegate_testkit::{
    Broker, BrokerConfig, NewRecord,
    oracle::{
        Committed, Evidence, Kafka, KafkaFailure, Partition, Queries, Rules, Tables, Verdict,
        ViolationKind, judge, ledger,
    },
};

const TOPIC: &str = "transfers";
const DEADLINE: Duration = Duration::from_secs(30);

fn transfer(id: u64, account: &str, revision: i64) -> String {
    format!(r#"{{"id":{id},"account":"{account}","revision":{revision},"amount":{id}}}"#)
}

fn broker() -> Broker {
    let config = BrokerConfig::default().with_topic(TOPIC, 2);
    let broker = Broker::start(config).expect("a port is free");
    let records = [
        NewRecord::new(0, transfer(1, "a", 1)).with_key("a"),
        NewRecord::new(0, transfer(2, "a", 2)).with_key("a"),
        NewRecord::new(1, transfer(3, "b", 1)).with_key("b"),
        NewRecord::tombstone(1, "b"),
    ];
    broker.produce(TOPIC, records).expect("the broker takes records");
    broker
}

fn kafka(broker: &Broker) -> Kafka {
    Kafka::new(broker.bootstrap()).with_deadline(DEADLINE)
}

fn committed(partition: i32, offset: Option<i64>, era: u32) -> Committed {
    Committed { partition: Partition::new(TOPIC, partition), offset, at: 0, era }
}

/// Without the times, which nobody knows before.
fn seen(committed: Vec<Committed>) -> Vec<Committed> {
    committed.into_iter().map(|it| Committed { at: 0, ..it }).collect()
}

#[tokio::test]
async fn a_topic_is_read_from_its_start_to_its_end() {
    let broker = broker();
    let log = kafka(&broker).log([TOPIC], ledger::meaning(100)).await.unwrap();
    let records: Vec<_> = log
        .inputs()
        .iter()
        .map(|input| {
            let place = input.record.place.to_string();
            (place, input.record.key.clone(), input.message().map(|it| (it.id.0, it.revision)))
        })
        .collect();
    let key = |text: &str| Some(text.as_bytes().to_vec());
    let expected = [
        ("transfers-0@0", key("a"), Some((1, 1))),
        ("transfers-0@1", key("a"), Some((2, 2))),
        ("transfers-1@0", key("b"), Some((3, 1))),
        ("transfers-1@1", key("b"), None),
    ];
    assert_eq!(records, expected.map(|(place, key, message)| (place.to_owned(), key, message)));
    let bounds: Vec<_> = log.bounds().values().map(|it| (it.start, it.end)).collect();
    assert_eq!(bounds, [(0, 2), (0, 2)]);
}

#[tokio::test]
async fn an_empty_topic_is_read_as_such() {
    let broker = broker();
    broker.create_topic("empty", 3).unwrap();
    let log = kafka(&broker).log(["empty"], ledger::meaning(100)).await.unwrap();
    assert_eq!((log.inputs().len(), log.bounds().len()), (0, 3));
}

#[tokio::test]
async fn a_cluster_that_is_away_is_said_to_be() {
    let broker = broker();
    broker.take_down(1).unwrap();
    let kafka = kafka(&broker).with_deadline(Duration::from_millis(200));
    let failure = kafka.log([TOPIC], ledger::meaning(100)).await.unwrap_err();
    assert!(matches!(failure, KafkaFailure::Partitions { .. }), "{failure}");
}

#[tokio::test]
async fn committed_offsets_are_read_once_or_watched() {
    let broker = broker();
    let kafka = kafka(&broker);
    broker.commit("group", TOPIC, [(0, 1)]).unwrap();
    let once = kafka.committed("group", [TOPIC]).await.unwrap();
    assert_eq!(seen(once), [committed(0, Some(1), 0), committed(1, None, 0)]);

    let watch = kafka.watch("group", [TOPIC], Duration::from_millis(5)).await.unwrap().in_era(1);
    let partition = Partition::new(TOPIC, 0);
    // An offset that goes back between two looks is not seen: wait for each.
    for offset in [1, 2, 1] {
        broker.commit("group", TOPIC, [(0, offset)]).unwrap();
        let sees = async {
            while watch.latest().get(&partition) != Some(&offset) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(DEADLINE, sees).await.expect("the watch looks again");
    }
    // The last look is after the call.
    broker.commit("group", TOPIC, [(1, 2)]).unwrap();
    let watched = seen(watch.stop().await.unwrap());
    let expected = [
        committed(0, Some(1), 1),
        committed(1, None, 1),
        committed(0, Some(2), 1),
        committed(0, Some(1), 1),
        committed(1, Some(2), 1),
    ];
    assert_eq!(watched, expected);
}

#[tokio::test]
async fn a_run_is_judged_by_what_is_really_there() {
    let broker = broker();
    let directory = TempDir::new().expect("there is room for a directory");
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("ledger.db").display());
    install_default_drivers();
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    let mut execute = async |sql: &str| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("it is right");
    };
    // An application without layers, by hand.
    execute(ledger::ENTRY_SQLITE).await;
    let insert = "INSERT INTO entry
        (id, account, revision, amount, topic, part, record_offset, worker, epoch)";
    execute(&format!("{insert} VALUES (1, 'a', 1, 1, '{TOPIC}', 0, 0, 'w', 1)")).await;
    execute(&format!("{insert} VALUES (3, 'b', 1, 3, '{TOPIC}', 1, 0, 'w', 1)")).await;
    broker.commit("group", TOPIC, [(0, 1), (1, 1)]).unwrap();

    let rules = Rules::default().without_inbox().without_sequencer().without_dead_letters();
    let mut queries = Queries::none();
    queries.effects = Queries::default().effects;
    let tables = Tables::new(&url, queries);
    let read = async || {
        let mut evidence = Evidence::default();
        let kafka = kafka(&broker);
        evidence.log = kafka.log([TOPIC], ledger::meaning(100)).await.unwrap();
        evidence.committed = Some(kafka.committed("group", [TOPIC]).await.unwrap());
        tables.read(&mut evidence).await.unwrap();
        evidence
    };

    let findings = judge(&read().await, rules.unfinished());
    assert_eq!(findings.verdict, Verdict::Pass, "{findings}");
    assert_eq!((findings.counts.effects, findings.counts.unread), (2, 2));
    let findings = judge(&read().await, rules);
    assert_eq!(findings.count(ViolationKind::NotConsumed), 2, "{findings}");

    // The highest offset that is done, and not what is done below it.
    broker.commit("group", TOPIC, [(0, 2)]).unwrap();
    let findings = judge(&read().await, rules.unfinished());
    assert_eq!(findings.count(ViolationKind::CommittedPastUnfinished), 1, "{findings}");
    assert_eq!(findings.count(ViolationKind::MissingEffect), 1, "{findings}");
}
