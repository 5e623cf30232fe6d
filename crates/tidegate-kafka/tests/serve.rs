//! A member of a group on an embedded broker: what it delivers and commits.

mod support;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate_core::{Class, Error};
use tidegate_kafka::{
    OnFailure, Panicked, PartitionState, PositionError, ServeError, StartPosition,
};
use tidegate_testkit::{ApiKey, ErrorCode};
use tokio::{
    sync::{
        Notify,
        oneshot::{self, error::TryRecvError},
    },
    time::sleep,
};

use crate::support::{
    GROUP, Journal, Member, Seen, TOPIC, broker, config, consumed, produce, takes, until,
};

const RETRY: OnFailure =
    OnFailure::Retry { first: Duration::from_millis(50), longest: Duration::from_millis(200) };

#[tokio::test(flavor = "multi_thread")]
async fn a_member_does_each_record_once_and_commits_to_the_end() {
    let broker = broker(4, 500);
    let journal = Journal::default();
    let member = Member::start(config(&broker), &journal, takes(0));
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
    journal.assert_no_overlap();
}

// D1, D2, D7, D8, D10, D14, D20: members join and leave all the time, records
// arrive during rebalances. Rules 10 and 13 of the driver: a drain, then the answer,
// then a seek on what is retained.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_and_go_do_each_record_once() {
    let broker = broker(8, 100);
    let journal = Journal::default();
    let start = || Member::start(config(&broker), &journal, takes(2));
    let (stop, mut stopped) = oneshot::channel::<()>();
    let producing = tokio::task::spawn_blocking({
        let broker = Arc::clone(&broker);
        // Each call takes 50 ms.
        move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                produce(&broker, 8, 20);
            }
        }
    });
    let mut members = vec![start(), start()];
    for round in 0..10 {
        if round % 2 == 0 {
            members.push(start());
        } else {
            members.remove(0).end().await.unwrap();
        }
        let before = journal.count();
        until("each has its share, and work goes on", || {
            let shares = members.iter().map(|it| it.status.partitions().len());
            shares.clone().sum::<usize>() == 8
                && shares.min() >= Some(2)
                && journal.count() > before + 500
        })
        .await;
    }
    stop.send(()).unwrap();
    producing.await.unwrap();
    consumed(&broker).await;
    for member in members {
        member.end().await.unwrap();
    }
    journal.assert_exact(&broker);
    journal.assert_no_overlap();
}

// C1, C5: half of what runs finishes in the drain, out of order.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_commits_the_contiguous_prefix_of_what_finished() {
    let broker = broker(1, 16);
    let journal = Journal::default();
    let (started, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let config = config(&broker).drain_deadline(Duration::from_millis(300));
    let member = Member::start(config, &journal, {
        let (started, go) = (Arc::clone(&started), Arc::clone(&go));
        move |seen: Seen| {
            let (started, go) = (Arc::clone(&started), Arc::clone(&go));
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                // 5 never ends; all others do when they may.
                if seen.offset == 5 {
                    std::future::pending::<()>().await;
                }
                go.notified().await;
                go.notify_one();
                Ok(())
            }
        }
    });
    until("all run", || started.load(Ordering::Relaxed) == 16).await;
    let ending = tokio::spawn(member.end());
    go.notify_one();
    ending.await.unwrap().unwrap();
    assert_eq!(journal.count(), 15);
    let committed = broker.committed(GROUP, TOPIC).unwrap();
    assert_eq!(committed[&0], Some(5), "nothing above the hole is committed");
}

// D5, D11: the deadline gives the partition away, the frontier stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_ends_gives_its_partition_away_by_the_deadline() {
    let broker = broker(2, 20);
    let journal = Journal::default();
    let stuck = |seen: Seen| async move {
        if seen.offset == 3 {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let config = || config(&broker).drain_deadline(Duration::from_millis(200));
    let first = Member::start(config(), &journal, stuck);
    until("all but the stuck ones are done", || journal.count() >= 2 * 15).await;
    let second = Member::start(config(), &journal, takes(0));
    until("one partition moves", || second.status.partitions().len() == 1).await;
    let moved = second.status.partitions()[0].partition.partition;
    until("it is done", || {
        journal.times().keys().filter(|seen| seen.partition == moved).count() == 20
    })
    .await;
    let repeated = journal.times().into_iter().filter(|(_, times)| *times > 1);
    let repeated: BTreeSet<_> = repeated.map(|(seen, _)| seen.offset).collect();
    assert!(repeated.iter().all(|offset| *offset > 3), "what was committed is not read again");
    // The one that could do the rest goes first.
    second.end().await.unwrap();
    first.end().await.unwrap();
    let committed = broker.committed(GROUP, TOPIC).unwrap();
    assert_eq!(committed[&(1 - moved)], Some(3), "the frontier waits at the hole");
}

// D12: what was ended by the deadline comes back, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_given_away_by_the_deadline_goes_on_when_it_comes_back() {
    let broker = broker(2, 20);
    let journal = Journal::default();
    let (stuck, healed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let work = {
        let (stuck, healed) = (Arc::clone(&stuck), Arc::clone(&healed));
        move |seen: Seen| {
            let (stuck, healed) = (Arc::clone(&stuck), Arc::clone(&healed));
            async move {
                if seen.offset == 3 && !healed.load(Ordering::Relaxed) {
                    stuck.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        }
    };
    let start = || {
        let config = config(&broker).drain_deadline(Duration::from_millis(200));
        Member::start(config, &journal, work.clone())
    };
    let first = start();
    until("both are stuck", || stuck.load(Ordering::Relaxed) == 2).await;
    let second = start();
    until("the other member is stuck too", || {
        stuck.load(Ordering::Relaxed) == 3 && second.status.partitions().len() == 1
    })
    .await;
    let moved = second.status.partitions()[0].partition.partition;
    healed.store(true, Ordering::Relaxed);
    second.end().await.unwrap();
    until("it came back, and goes on", || {
        journal.times().contains_key(&Seen { partition: moved, offset: 3 })
    })
    .await;
    first.end().await.unwrap();
    let third = start();
    consumed(&broker).await;
    third.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
    let below = journal.times().into_iter().filter(|(seen, _)| seen.offset < 3);
    assert!(below.into_iter().all(|(_, times)| times == 1));
    journal.assert_no_overlap();
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

// D14, D16: the client's limit is for its own thread, which handlers do not block.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_take_longer_than_the_poll_interval() {
    let broker = broker(1, 2);
    let journal = Journal::default();
    let config = config(&broker)
        .property("max.poll.interval.ms", "1000")
        .drain_deadline(Duration::from_millis(300));
    let member = Member::start(config, &journal, takes(3_000));
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

// D4, D19: what is retained goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoke_leaves_running_work_of_other_partitions_alone() {
    let broker = broker(2, 4);
    let journal = Journal::default();
    let (running, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let held = {
        let (running, go) = (Arc::clone(&running), Arc::clone(&go));
        move |seen: Seen| {
            let (running, go) = (Arc::clone(&running), Arc::clone(&go));
            async move {
                if seen.offset == 3 {
                    running.fetch_add(1, Ordering::Relaxed);
                    go.notified().await;
                }
                Ok(())
            }
        }
    };
    let config = || config(&broker).drain_deadline(Duration::from_millis(300));
    let first = Member::start(config(), &journal, held);
    until("both wait", || running.load(Ordering::Relaxed) == 2).await;
    let second = Member::start(config(), &journal, takes(0));
    until("one partition moved", || {
        first.status.partitions().len() == 1 && second.status.partitions().len() == 1
    })
    .await;
    let kept = first.status.partitions()[0].partition.partition;
    go.notify_waiters();
    until("the retained one finishes", || {
        journal.times().contains_key(&Seen { partition: kept, offset: 3 })
    })
    .await;
    consumed(&broker).await;
    first.end().await.unwrap();
    second.end().await.unwrap();
    let kept = journal.times().into_iter().filter(|(seen, _)| seen.partition == kept);
    assert!(kept.into_iter().all(|(_, times)| times == 1));
}

// I12, I14: a failure stops its partition, visibly, and no other; after a pause
// it goes on from the frontier, under a new lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_stops_its_partition_and_it_is_tried_again() {
    let broker = broker(2, 50);
    let journal = Journal::default();
    let healed = Arc::new(AtomicBool::new(false));
    let tries = Arc::new(AtomicUsize::new(0));
    let fails = {
        let (healed, tries) = (Arc::clone(&healed), Arc::clone(&tries));
        move |seen: Seen| {
            let (healed, tries) = (Arc::clone(&healed), Arc::clone(&tries));
            async move {
                if seen == (Seen { partition: 0, offset: 20 }) && !healed.load(Ordering::Relaxed) {
                    tries.fetch_add(1, Ordering::Relaxed);
                    return Err(Error::new(Class::Poison, "no such account"));
                }
                Ok(())
            }
        }
    };
    let member = Member::start(config(&broker).on_failure(RETRY), &journal, fails);
    until("it is stopped", || {
        member.partition(0).is_some_and(|it| it.state == PartitionState::Stopped)
    })
    .await;
    let status = member.partition(0).unwrap();
    let cause = status.cause.unwrap();
    assert_eq!(cause.class(), Class::Poison);
    assert_eq!(cause.chain(), "a record can never be applied: no such account");
    assert_eq!(status.frontier, Some(20));
    until("the other one is done", || member.partition(1).is_some_and(|it| it.lag == Some(0)))
        .await;
    until("it is tried again", || tries.load(Ordering::Relaxed) >= 3).await;
    assert_eq!(broker.committed(GROUP, TOPIC).unwrap()[&0], Some(20));
    healed.store(true, Ordering::Relaxed);
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
    let below = journal.times().into_iter().filter(|(seen, _)| seen.offset < 20);
    assert!(below.into_iter().all(|(_, times)| times == 1));
    journal.assert_no_overlap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_ends_the_source_where_that_was_chosen() {
    let broker = broker(2, 50);
    let journal = Journal::default();
    let member = Member::start(
        config(&broker).on_failure(OnFailure::End),
        &journal,
        |seen: Seen| async move {
            if seen == (Seen { partition: 0, offset: 20 }) {
                return Err(Error::new(Class::Fatal, "no such table"));
            }
            Ok(())
        },
    );
    let error = member.ended().await.unwrap_err();
    let ServeError::Stopped(cause) = error else { panic!("{error}") };
    assert_eq!(cause.chain(), "the partition cannot go on: no such table");
    assert_eq!(broker.committed(GROUP, TOPIC).unwrap()[&0], Some(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_stack_stops_its_partition_and_the_process_lives() {
    let broker = broker(2, 10);
    let journal = Journal::default();
    let once = Arc::new(AtomicBool::new(true));
    let member = Member::start(config(&broker).on_failure(RETRY), &journal, {
        move |seen: Seen| {
            let panics =
                seen == (Seen { partition: 1, offset: 4 }) && once.swap(false, Ordering::Relaxed);
            async move {
                assert!(!panics, "oh no");
                Ok(())
            }
        }
    });
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_make_service_is_the_partitions_cause() {
    let broker = broker(1, 10);
    let member = Member::serve::<_, support::Stack>(config(&broker).on_failure(RETRY), |_| {
        panic!("no database")
    });
    until("it is stopped", || member.partition(0).is_some_and(|it| it.cause.is_some())).await;
    let cause = member.partition(0).and_then(|it| it.cause).unwrap();
    let panicked: &Panicked = cause.downcast_ref().unwrap();
    assert_eq!(panicked.to_string(), "the make-service panicked: no database");
    member.end().await.unwrap();
}

// I7; C10, D3: the partition comes back to the member while the old handler
// still runs; the same record is not worked on beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_stack_waits_for_the_end_of_the_old_ones_handlers() {
    let broker = broker(1, 10);
    let journal = Journal::default();
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let first = Arc::new(AtomicBool::new(true));
    let config = config(&broker).on_failure(RETRY).drain_deadline(Duration::from_millis(50));
    let member = Member::start(config, &journal, {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move |seen: Seen| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let first = seen.offset == 5 && first.swap(false, Ordering::Relaxed);
            async move {
                if seen.offset != 5 {
                    return Ok(());
                }
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                if first {
                    // Fails the partition, and goes on where no abort reaches.
                    tokio::task::block_in_place(|| {
                        let until = std::time::Duration::from_millis(400);
                        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
                        let _ = receiver.recv_timeout(until);
                    });
                    running.fetch_sub(1, Ordering::Relaxed);
                    return Err(Error::new(Class::Transient, "not now"));
                }
                running.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            }
        }
    });
    consumed(&broker).await;
    assert_eq!(most.load(Ordering::Relaxed), 1, "one at a time");
    member.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
}

// D6, D9, Q5, I10: a full partition blocks itself alone, and holds no more than it may.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_full_blocks_itself_alone() {
    let broker = broker(2, 2_000);
    let journal = Journal::default();
    let go = Arc::new(Notify::new());
    let config = config(&broker).in_flight(100, 1 << 20);
    let member = Member::start(config, &journal, {
        let go = Arc::clone(&go);
        move |seen: Seen| {
            let go = Arc::clone(&go);
            async move {
                if seen == (Seen { partition: 0, offset: 0 }) {
                    go.notified().await;
                }
                Ok(())
            }
        }
    });
    until("the other one is done", || member.partition(1).is_some_and(|it| it.lag == Some(0)))
        .await;
    let status = member.partition(0).unwrap();
    // 16 places in the stack; one is held by the first record.
    until("it stands", || member.partition(0).is_some_and(|it| it.frontier == Some(0))).await;
    assert!(status.in_flight <= 100, "{status:?}");
    go.notify_one();
    consumed(&broker).await;
    member.end().await.unwrap();
    journal.assert_exact(&broker);
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_dropped_leaves_the_group_to_others() {
    let broker = broker(2, 200);
    let journal = Journal::default();
    let first = Member::start(config(&broker), &journal, takes(5));
    until("it works", || journal.count() > 50).await;
    first.abandon();
    let second = Member::start(config(&broker), &journal, takes(0));
    consumed(&broker).await;
    second.end().await.unwrap();
    journal.assert_nothing_missing(&broker);
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

// C2: nothing below what was committed, and nothing beyond the log, ever.
#[tokio::test(flavor = "multi_thread")]
async fn rebalances_without_traffic_commit_nothing_new() {
    let broker = broker(4, 10);
    let journal = Journal::default();
    let start = || Member::start(config(&broker), &journal, takes(0));
    let first = start();
    consumed(&broker).await;
    for _ in 0..5 {
        let other = start();
        until("it joined", || !other.status.partitions().is_empty()).await;
        other.end().await.unwrap();
        let committed = broker.committed(GROUP, TOPIC).unwrap();
        assert!(committed.values().all(|it| *it == Some(10)), "{committed:?}");
    }
    first.end().await.unwrap();
    journal.assert_exact(&broker);
}

// D15: idle, then one record.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_after_an_idle_time_is_delivered_at_once() {
    let broker = broker(1, 1);
    let journal = Journal::default();
    let member = Member::start(config(&broker), &journal, takes(0));
    consumed(&broker).await;
    // Longer than any interval of the driver's and of this client's.
    sleep(Duration::from_secs(3)).await;
    produce(&broker, 1, 1);
    until("it is done", || journal.count() == 2).await;
    member.end().await.unwrap();
}
