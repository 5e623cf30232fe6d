//! The driver: one thread that owns the client, and makes every call to it, but
//! for those that wait ([`aside`]).
//!
//! ```text
//!  poll loop:  reports · main queue · commit results · events · look-ups ·
//!              drains · membership · partitions · reading · stalls ·
//!              heartbeat · shutdown
//! ```
//!
//! What decides is in values that know no client: [`membership`], [`start`],
//! [`lookup`], [`pause`], [`shown`], [`stall`], [`agreement`].
//!
//! The rules it keeps, and what fails if one is broken. A name alone is a test
//! of this crate; `lab` names an experiment of `cargo xtask integration`.
//!
//! | rule | held by |
//! | --- | --- |
//! | 1. One thread makes every call; rebalances are queued, and answered one at a time | `members_that_come_and_go_do_each_record_once` |
//! | 2. Own commits, one in flight, of the newest frontiers, each result read | `a_commit_that_fails_is_sent_again` |
//! | 3. A result of an earlier membership changes nothing | `a_member_that_is_fenced_loses_its_partitions_and_comes_back` |
//! | 4. Unknown or fenced: all is lost at once | `a_commit_proves_or_loses_the_membership_or_neither` |
//! | 5. A generation or epoch that is behind is no loss | the same; lab `commit-refused` |
//! | 6. A commit each third of a session is the proof; without one, work is suspended | `proofs_are_sent_three_times_a_session`, `a_proof_counts_for_a_session_from_when_it_was_sent`, `an_assignment_is_a_proof_for_what_a_member_keeps` |
//! | 7. A rejoin excuses silence, unless the process stood still | `a_rejoin_excuses_silence_unless_the_process_stood_still` |
//! | 8. Workers look at the lease by the clock before each record | the tests of `tidegate-fence`; lab `zombie` |
//! | 9. What is finished and unconfirmed is bounded | `no_more_is_finished_than_may_be_unconfirmed` |
//! | 10. A drain has a deadline, then a last commit, then the answer | `a_handler_that_never_ends_gives_its_partition_away_by_the_deadline`, `a_revoke_ends_by_its_deadline_though_no_commit_is_accepted` |
//! | 11. A shutdown drains and commits before the queue is closed | `a_shutdown_commits_the_contiguous_prefix_of_what_finished` |
//! | 12. No commit without a coordinator; the close has a deadline | `a_shutdown_ends_in_time_while_the_broker_is_away` |
//! | 13. Retained partitions are sought before a rebalance is answered: end-of-partition events in a batch make the client skip | `the_frontier_reaches_the_end_behind_transactions`; lab `client-traps` |
//! | 14. A partition that stands still is probed, then the client is replaced | `two_probes_without_an_answer_ask_for_another_client` |
//! | 15. A loss that a commit reported has to be announced within a session | `a_loss_that_does_not_come_is_noticed_after_a_session` |
//! | 16. An identity that was taken ends the source with the error | `a_member_whose_identity_was_taken_ends_with_the_error` |
//! | 17. The main queue is emptied each turn; an error is shown once in 10 s | `an_error_that_repeats_is_shown_once_in_ten_seconds` |
//! | 18. What no member has is seen from outside only | `offsets_are_set_only_while_the_group_is_stopped` (the group's lag and members) |
//! | 19. A client that missed what the broker gave it, or wants back, is replaced | `what_was_given_and_is_not_known_asks_for_another_client`, `what_was_to_be_given_back_and_is_kept_asks_for_another_client`; lab `client-traps` |
//! | 20. In the classic protocols the client is made to look for a heartbeat in time | `an_idle_member_sends_its_heartbeats_when_they_are_due` |
//! | Start 1. All questions go out at once; answers of other numbers are dropped | `all_questions_go_out_at_once_and_are_needed`, `answers_with_other_numbers_are_not_taken` |
//! | Start 2. A question has no time limit of its own: the client would abort | lab `client-traps` |
//! | Start 3. Without a commit the policy chooses, and the choice is committed first | `a_partition_starts_where_the_policy_says` |
//! | Start 4. An offset outside the log, or a topic made anew, is refused | `a_committed_offset_outside_the_log_stops_the_partition_and_no_other`, `a_topic_made_anew_is_refused` |
//! | Start 5. The topic's id is looked at again and again | lab `client-traps` |
//! | Start 6. A late answer is no proof of membership | `a_proof_counts_for_a_session_from_when_it_was_sent` |
//! | Start 7. What is not known in time starts later, and holds nobody up | `a_position_that_is_not_known_in_time_is_resolved_later`, `a_position_that_is_unknown_for_sessions_leaves_the_member_in_the_group`, `a_leader_that_does_not_answer_is_looked_for_and_asked_again`; lab `broker-network` |
//! | Start 8. A close does not wait for open questions | `a_shutdown_ends_in_time_while_positions_are_looked_up` |

mod agreement;
mod aside;
mod checks;
mod commits;
mod context;
mod feed;
mod heartbeat;
mod lookup;
mod membership;
mod partition;
mod partitions;
mod pause;
mod publish;
mod rebalance;
mod shown;
mod stall;
mod start;
mod turn;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, mpsc},
    thread::{self, Thread},
    time::Duration,
};

use rdkafka::{
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tidegate_core::{Error, Lease, TopicId, TopicPartition};
use tokio::time::Instant;

pub(crate) use self::start::metadata;
use self::{
    aside::Asker,
    checks::Checks,
    commits::Commits,
    context::{Context, Rebalance},
    heartbeat::Heartbeat,
    lookup::Lookup,
    membership::Membership,
    partition::{Partition, Stage},
    rebalance::{Assigning, Draining},
    shown::Shown,
};
pub use self::{feed::ReadError, start::PositionError};
use crate::{
    ServeError,
    config::{Session, Settings},
    ffi::{self, Queue},
    metrics::Metrics,
    status::Publisher,
    stop::Stop,
    task::{Report, Reports, Spawn},
};

type Consumer = BaseConsumer<Context>;

/// What outlives a client: it is handed from one to the next.
pub(crate) struct Driver {
    settings: Settings,
    topics: Vec<String>,
    session: Session,
    stop: Stop,
    spawn: Spawn,
    reports: Reports,
    inbox: mpsc::Receiver<Report>,
    status: Publisher,
    metrics: Metrics,
    thread: Arc<Thread>,
    // Leases of stacks that were dropped and whose deliveries may still live:
    // no other stack starts on the partition before they are gone (I7).
    ghosts: HashMap<TopicPartition, Vec<Arc<Lease>>>,
    // The ids that topics had when this process worked on them.
    topic_ids: BTreeMap<Arc<str>, TopicId>,
    numbers: u64,
    failure: Option<Error>,
}

/// How a client came to its end.
enum End {
    /// It was asked to.
    Closed,
    /// It has to be replaced, for this reason.
    Rebuild(String),
    /// The broker still counts an earlier holder of our static identity.
    Unreleased(String),
    /// No other client would do better.
    Failed(ServeError),
}

// The pause before another client is built.
const REBUILD: Duration = Duration::from_millis(500);
const UNRELEASED: Duration = Duration::from_secs(1);

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        topics: Vec<String>,
        session: Session,
        stop: Stop,
        spawn: Spawn,
        status: Publisher,
        metrics: Metrics,
    ) -> Self {
        let thread = Arc::new(thread::current());
        let (sender, inbox) = mpsc::channel();
        Self {
            settings,
            topics,
            session,
            stop,
            spawn,
            reports: Reports::new(sender, Arc::clone(&thread)),
            inbox,
            status,
            metrics,
            thread,
            ghosts: HashMap::new(),
            topic_ids: BTreeMap::new(),
            numbers: 0,
            failure: None,
        }
    }

    /// Runs clients, one after another, until it is asked to stop, or until no
    /// other client would help.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let mut unreleased_since = None;
        loop {
            let pause = match self.run_client() {
                End::Closed => {
                    return self.failure.map_or(Ok(()), |it| Err(ServeError::Stopped(it)));
                }
                End::Failed(error) => return Err(error),
                End::Rebuild(reason) => {
                    unreleased_since = None;
                    tracing::warn!(reason, "the client is replaced");
                    self.metrics.client_replaced();
                    REBUILD
                }
                End::Unreleased(reason) => {
                    // A restarted process meets its own old membership, which
                    // ends with its session.
                    let since = *unreleased_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.session.timeout + UNRELEASED {
                        return Err(ServeError::Fenced { reason });
                    }
                    tracing::warn!(reason, "the static identity is not released yet");
                    UNRELEASED
                }
            };
            if self.stop.wait(pause) {
                return self.failure.map_or(Ok(()), |it| Err(ServeError::Stopped(it)));
            }
        }
    }

    fn run_client(&mut self) -> End {
        let consumer: Consumer = match self.settings.client.create_with_context(Context::default())
        {
            Ok(consumer) => consumer,
            Err(error) => return End::Failed(ServeError::Client(error.to_string())),
        };
        let topics: Vec<_> = self.topics.iter().map(String::as_str).collect();
        if let Err(error) = consumer.subscribe(&topics) {
            return End::Failed(ServeError::Client(error.to_string()));
        }
        let end = thread::scope(|scope| match Asker::start(scope, &consumer) {
            Ok(asker) => Client::new(self, &consumer, asker).run(),
            Err(_) => End::Failed(ServeError::Thread("could not be started")),
        });
        self.status.clear();
        if consumer.closed() {
            ffi::destroy(consumer);
        } else {
            // Dropping it would block, perhaps for ever.
            ffi::give_up(consumer);
        }
        end
    }
}

/// The driver with one client.
struct Client<'c> {
    driver: &'c mut Driver,
    consumer: &'c Consumer,
    main: Queue<'c>,
    results: Queue<'c>,
    answers: Queue<'c>,
    asker: Asker,
    partitions: BTreeMap<TopicPartition, Partition<'c>>,
    membership: Membership,
    commits: Commits,
    /// An assignment whose partitions are looked up; its event is not answered.
    assigning: Option<Assigning>,
    /// Partitions that start later, since they could not be resolved in time.
    resolving: Option<Lookup>,
    /// A revoke, or our own shutdown, that waits for its drain.
    draining: Option<Draining>,
    /// An event that came while another one was not answered.
    waiting: Option<Rebalance>,
    checks: Checks,
    heartbeat: Heartbeat<'c>,
    suspended: bool,
    phase: Phase,
    rebuild: Option<String>,
    shown: Shown,
    /// When the status was last published.
    published: Instant,
    questions: u64,
    /// Where messages are taken to.
    buffer: Vec<*mut rdkafka_sys::rd_kafka_message_t>,
}

/// How far this client is on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The last drain.
    Stopping,
    /// The queue is closed, since then.
    Closing(Instant),
}

impl<'c> Client<'c> {
    fn new(driver: &'c mut Driver, consumer: &'c Consumer, asker: Asker) -> Self {
        let now = Instant::now();
        let session = driver.session;
        let heartbeat = Heartbeat::new(&driver.settings, consumer, now);
        Self {
            driver,
            consumer,
            main: Queue::main(consumer),
            results: Queue::new(consumer.client()).waking(),
            answers: Queue::new(consumer.client()).waking(),
            asker,
            partitions: BTreeMap::new(),
            membership: Membership::new(session, now),
            commits: Commits::new(now),
            assigning: None,
            resolving: None,
            draining: None,
            waiting: None,
            checks: Checks::new(now),
            heartbeat,
            suspended: false,
            phase: Phase::Serving,
            rebuild: None,
            shown: Shown::default(),
            published: now,
            questions: 0,
            buffer: vec![std::ptr::null_mut(); feed::BATCH],
        }
    }

    /// Whether the client hands out records: not while an event is unanswered,
    /// nor after the queue was closed.
    fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
            && self.draining.is_none()
            && self.assigning.is_none()
            && !self.suspended
    }
}

/// Whether an error of the client says that it is broken.
fn is_fatal(error: &KafkaError) -> bool {
    matches!(error, KafkaError::MessageConsumptionFatal(_))
        || error.rdkafka_error_code() == Some(Code::Fatal)
}
