//! A topic of dead letters, on an embedded broker.

mod support;

use std::time::Duration;

use tidegate_core::{Class, DeadLetters as _, Epoch, Error, Header, Lease, Record, TopicPartition};
use tidegate_kafka::DeadLetterTopic;
use tidegate_testkit::{ApiKey, ErrorCode};

use crate::support::{TOPIC, broker, config};

const LETTERS: &str = "dead-letters";

fn record() -> Record {
    Record::new(TopicPartition::new(TOPIC, 3), 7, "not json")
        .with_key("alice")
        .with_headers([Header::new("trace", "t1")])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_stored_with_what_is_needed_to_replay_it() {
    let broker = broker(1, 0);
    broker.create_topic(LETTERS, 1).unwrap();
    let (_owner, lease) = Lease::grant(record().partition, Epoch::new(1, "member"));
    let cause = Error::new(Class::Poison, "expected value at line 1 column 1");
    let store = DeadLetterTopic::new(&config(&broker), LETTERS).unwrap();
    store.bury(&lease, &record(), &cause).await.unwrap();

    let ends = broker.end_offsets(LETTERS).unwrap();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [(0, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_is_not_stored_says_so_and_can_be_tried_again() {
    let broker = broker(1, 0);
    broker.create_topic(LETTERS, 1).unwrap();
    broker.fail_requests(ApiKey::PRODUCE, &[ErrorCode::NotEnoughReplicas; 1_000]);
    let (_owner, lease) = Lease::grant(record().partition, Epoch::new(1, "member"));
    // Short, since it is waited for; but a letter has to get through in it later.
    let timeout = Duration::from_secs(5);
    let store = DeadLetterTopic::with_timeout(&config(&broker), LETTERS, timeout).unwrap();
    let cause = Error::new(Class::Poison, "expected value");
    let error = store.bury(&lease, &record(), &cause).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient, "replicas come back");
    assert!(error.chain().contains("the dead letter was not stored in `dead-letters`"), "{error}");

    broker.clear_failures(ApiKey::PRODUCE);
    store.bury(&lease, &record(), &cause).await.unwrap();
}
