//! What a member does when the broker refuses, has forgotten, or is away.

mod support;

use std::time::Duration;

use tidegate_kafka::{KafkaConfig, PartitionState, PositionError, ServeError, StartPosition};
use tidegate_testkit::{ApiKey, BrokerConfig, ErrorCode, Request};
use tokio::time::{Instant, timeout};

use crate::support::{
    GROUP, Journal, Member, TOPIC, broker, broker_with, config, consumed, produce, takes, until,
};

// The member is fenced; the group goes on, and nothing is committed for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_fenced_loses_its_partitions_and_comes_back() {
    let broker = broker(4, 400);
    let journal = Journal::default();
    let member = Member::start(config(&broker), &journal, takes(1));
    until("it works", || journal.count() > 200).await;
    broker.fail_requests(ApiKey::CONSUMER_GROUP_HEARTBEAT, &[ErrorCode::FencedMemberEpoch]);
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
}

// C13, C15, C18: a commit that fails is seen, and sent again with what is newest.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_is_sent_again() {
    let broker = broker(2, 300);
    let journal = Journal::default();
    let errors = [
        ErrorCode::StaleMemberEpoch,
        ErrorCode::StaleMemberEpoch,
        ErrorCode::StaleMemberEpoch,
        ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::RequestTimedOut,
        ErrorCode::RebalanceInProgress,
    ];
    broker.fail_requests(ApiKey::OFFSET_COMMIT, &errors);
    let member = Member::start(config(&broker), &journal, takes(1));
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Of itself the client of an idle member looks twice a second whether one is due.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_member_sends_its_heartbeats_when_they_are_due() {
    const HEARTBEATS: usize = 40;

    let broker = broker(1, 1);
    let journal = Journal::default();
    let config = KafkaConfig::new(broker.bootstrap(), GROUP)
        .property("heartbeat.interval.ms", "50")
        .topic_check(None);
    let member = Member::start(config, &journal, takes(0));
    consumed(&broker).await;
    broker.track_requests();
    let began = Instant::now();
    until("heartbeats come", || {
        let is_heartbeat = |it: &Request| it.api == ApiKey::HEARTBEAT;
        broker.requests().into_iter().filter(is_heartbeat).count() >= HEARTBEATS
    })
    .await;
    // Some 2.5 s, and 13 s without help.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{HEARTBEATS} heartbeats came within {took:?}");
    // What makes it look is no request, and nothing was there to be committed.
    let commits = broker.requests().into_iter().filter(|it| it.api == ApiKey::OFFSET_COMMIT);
    assert_eq!(commits.count(), 0);
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_starts_where_the_policy_says() {
    for (policy, first) in [(StartPosition::Earliest, 0), (StartPosition::Latest, 30)] {
        let broker = support::without_offsets(1, 30);
        let journal = Journal::default();
        let member = Member::start(config(&broker).start(policy), &journal, takes(0));
        until("the start is committed", || {
            broker.committed(GROUP, TOPIC).is_ok_and(|it| it[&0].is_some())
        })
        .await;
        produce(&broker, 1, 10);
        consumed(&broker).await;
        member.end().await.unwrap();
        let done: Vec<_> = journal.times().into_keys().map(|seen| seen.offset).collect();
        assert_eq!(done, (first..40).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_a_start_stops_and_says_so() {
    let broker = support::without_offsets(1, 30);
    let journal = Journal::default();
    let member = Member::start(config(&broker).start(StartPosition::Error), &journal, takes(0));
    until("it is stopped", || member.partition(0).is_some_and(|it| it.cause.is_some())).await;
    let cause = member.partition(0).and_then(|it| it.cause).unwrap();
    assert_eq!(cause.downcast_ref(), Some(&PositionError::NothingCommitted));
    member.end().await.unwrap();
    assert_eq!(broker.committed(GROUP, TOPIC).unwrap()[&0], None, "nothing is committed for it");
    assert_eq!(journal.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_offset_outside_the_log_stops_the_partition_and_no_other() {
    let broker = support::without_offsets(2, 30);
    broker.commit(GROUP, TOPIC, [(0, 500), (1, 10)]).unwrap();
    let journal = Journal::default();
    let member = Member::start(config(&broker), &journal, takes(0));
    until("it is stopped", || member.partition(0).is_some_and(|it| it.cause.is_some())).await;
    let cause = member.partition(0).and_then(|it| it.cause).unwrap();
    let message = cause.chain();
    assert!(message.contains("the committed offset 500 lies outside the log, 0..30"), "{message}");
    until("the other one is done", || member.partition(1).is_some_and(|it| it.lag == Some(0)))
        .await;
    member.end().await.unwrap();
    let committed = broker.committed(GROUP, TOPIC).unwrap();
    assert_eq!((committed[&0], committed[&1]), (Some(500), Some(30)));
    assert_eq!(journal.count(), 20);
}

// C16: the broker takes no commits while a drain waits for its last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoke_ends_by_its_deadline_though_no_commit_is_accepted() {
    let broker = broker(2, 50);
    let journal = Journal::default();
    let config = || config(&broker).drain_deadline(Duration::from_millis(500));
    let first = Member::start(config(), &journal, takes(0));
    until("all is done", || journal.count() == 100).await;
    broker.fail_requests(ApiKey::OFFSET_COMMIT, &[ErrorCode::CoordinatorLoadInProgress; 10_000]);
    let second = Member::start(config(), &journal, takes(0));
    until("one partition moves", || second.status.partitions().len() == 1).await;
    broker.clear_failures(ApiKey::OFFSET_COMMIT);
    consumed(&broker).await;
    first.end().await.unwrap();
    second.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
}

// Rule 9: what a crash repeats is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_finished_than_may_be_unconfirmed() {
    let broker = broker(1, 2_000);
    let journal = Journal::default();
    broker.fail_requests(ApiKey::OFFSET_COMMIT, &[ErrorCode::CoordinatorLoadInProgress; 10_000]);
    let config = config(&broker).unconfirmed(100).in_flight(50, 1 << 20);
    let member = Member::start(config, &journal, takes(0));
    until("it waits for a commit", || {
        member.partition(0).is_some_and(|it| it.frontier > Some(100) && it.in_flight == 0)
    })
    .await;
    assert!(journal.count() <= 100 + 50, "{}", journal.count());
    broker.clear_failures(ApiKey::OFFSET_COMMIT);
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Rules 11 and 12: there is nobody to commit to, or to leave.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_in_time_while_the_broker_is_away() {
    let session = Duration::from_secs(3);
    let broker = broker_with(BrokerConfig::default().with_session(session), 2, 50);
    let journal = Journal::default();
    let config = config(&broker)
        .group_session(session, Duration::from_millis(100))
        .drain_deadline(Duration::from_millis(300))
        .close_deadline(Duration::from_millis(300));
    let member = Member::start(config, &journal, takes(0));
    until("all is done", || journal.count() == 100).await;
    broker.take_down(1).unwrap();
    // The client by itself would wait for a coordinator for 45 s.
    let _ = timeout(Duration::from_secs(20), member.end()).await.expect("it does not wait");
    broker.bring_up(1).unwrap();
    let next = Member::start(support::config(&broker), &journal, takes(0));
    consumed(&broker).await;
    next.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
}

// Rule 8 of starting: it is not known yet where the partitions start.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_in_time_while_positions_are_looked_up() {
    let broker = broker(2, 50);
    let journal = Journal::default();
    broker.fail_requests(ApiKey::OFFSET_FETCH, &[ErrorCode::UnstableOffsetCommit; 10_000]);
    broker.track_requests();
    let member = Member::start(config(&broker), &journal, takes(0));
    until("it looks up where they start", || {
        broker.requests().iter().any(|it| it.api == ApiKey::OFFSET_FETCH)
    })
    .await;
    member.end().await.unwrap();
    assert_eq!(journal.count(), 0);
    broker.clear_failures(ApiKey::OFFSET_FETCH);
    let next = Member::start(config(&broker), &journal, takes(0));
    consumed(&broker).await;
    next.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Rule 7 of starting: what is not known in time is resolved later.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_is_not_known_in_time_is_resolved_later() {
    let broker = broker(2, 50);
    let journal = Journal::default();
    broker.fail_requests(ApiKey::OFFSET_FETCH, &[ErrorCode::UnstableOffsetCommit; 10_000]);
    let config = config(&broker).lookup_deadline(Duration::from_millis(200));
    let member = Member::start(config, &journal, takes(0));
    until("it has partitions, and no positions", || {
        let partitions = member.status.partitions();
        partitions.len() == 2 && partitions.iter().all(|it| it.state == PartitionState::Starting)
    })
    .await;
    assert_eq!(journal.count(), 0, "nothing is read from a position that is made up");
    broker.clear_failures(ApiKey::OFFSET_FETCH);
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Rule 7 of starting: until then there is nothing to commit, and so no proof of
// the membership to be had. Its lack is no reason to give the client up.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_is_unknown_for_sessions_leaves_the_member_in_the_group() {
    let session = Duration::from_secs(3);
    let broker = broker_with(BrokerConfig::default().with_session(session), 2, 50);
    let journal = Journal::default();
    broker.fail_requests(ApiKey::OFFSET_FETCH, &[ErrorCode::UnstableOffsetCommit; 10_000]);
    let config = config(&broker)
        .group_session(session, Duration::from_millis(100))
        .lookup_deadline(Duration::from_millis(200));
    let member = Member::start(config, &journal, takes(0));
    until("it has partitions", || member.status.partitions().len() == 2).await;
    let joined = member.partition(0).map(|it| it.epoch);
    let since = Instant::now();
    until("a client would have been given up", || since.elapsed() > session * 5).await;
    broker.clear_failures(ApiKey::OFFSET_FETCH);
    consumed(&broker).await;
    assert_eq!(member.partition(0).map(|it| it.epoch), joined, "it is the same membership");
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Rule 6: the broker counts a member when it gives it another partition, and what
// it keeps goes on with that: no lease runs out on its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_assignment_is_a_proof_for_what_a_member_keeps() {
    let session = Duration::from_secs(3);
    let broker = broker_with(BrokerConfig::default().with_session(session), 2, 50);
    let journal = Journal::default();
    let config = || config(&broker).group_session(session, Duration::from_millis(100));
    let members = [(); 2].map(|()| Member::start(config(), &journal, takes(0)));
    let has = |member: &Member| member.status.partitions().len();
    until("each has a partition", || members.iter().all(|member| has(member) == 1)).await;
    consumed(&broker).await;
    let [stays, leaves] = members;
    broker.fail_requests(ApiKey::OFFSET_COMMIT, &[ErrorCode::RequestTimedOut; 10_000]);
    let since = Instant::now();
    until("most of a session is over", || since.elapsed() > session * 2 / 3).await;
    // All that it has done is committed.
    leaves.end().await.unwrap();
    until("the other one has both", || has(&stays) == 2).await;
    until("the last commit proves nothing any more", || since.elapsed() > session).await;
    produce(&broker, 2, 50);
    until("somebody has looked", || since.elapsed() > session * 7 / 6).await;
    broker.clear_failures(ApiKey::OFFSET_COMMIT);
    consumed(&broker).await;
    stays.end().await.unwrap();
    journal.assert_exact(&broker);
}

// Rule 16: another process has the identity.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_identity_was_taken_ends_with_the_error() {
    let broker = broker(2, 200);
    let journal = Journal::default();
    // Only the classic protocol takes an identity away from a member that lives.
    let config =
        config(&broker).property("group.protocol", "classic").property("group.instance.id", "one");
    let member = Member::start(config, &journal, takes(5));
    until("it works", || journal.count() > 20).await;
    broker.fail_requests(ApiKey::HEARTBEAT, &[ErrorCode::FencedInstanceId; 10_000]);
    let error = member.ended().await.unwrap_err();
    assert!(matches!(error, ServeError::Fenced { .. }), "{error}");
}
