//! The driver: one thread that owns the client, and makes every call to it, but
//! for one that waits ([`committed`]).
//!
//! ```text
//!  poll loop:  reports · main queue · commit results · events · look-ups ·
//!              drains · membership · partitions · reading · stalls · shutdown
//! ```
//!
//! What decides is in values that know no client: [`membership`], [`start`],
//! [`lookup`], [`pause`], [`stall`].

mod checks;
mod commits;
mod committed;
mod context;
mod feed;
mod lookup;
mod membership;
mod partition;
mod partitions;
mod pause;
mod publish;
mod rebalance;
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
    checks::Checks,
    commits::Commits,
    committed::Asker,
    context::{Context, Rebalance},
    lookup::Lookup,
    membership::Membership,
    partition::{Partition, Stage},
    rebalance::{Assigning, Draining},
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
// How long the threads of a closed client may take to end.
const DESTROY: Duration = Duration::from_secs(3);

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
            ffi::destroy(consumer, DESTROY);
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
    suspended: bool,
    phase: Phase,
    rebuild: Option<String>,
    /// Errors of the client, and when each was last shown.
    shown: HashMap<String, Instant>,
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
            suspended: false,
            phase: Phase::Serving,
            rebuild: None,
            shown: HashMap::new(),
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

    fn show_error(&mut self, error: String, now: Instant) {
        const AGAIN: Duration = Duration::from_secs(10);
        let shown = self.shown.get(&error);
        if shown.is_none_or(|at| now.saturating_duration_since(*at) > AGAIN) {
            tracing::warn!(error, "the client reports an error");
            if self.shown.len() > 100 {
                self.shown.clear();
            }
            self.shown.insert(error, now);
        }
    }
}

/// Whether an error of the client says that it is broken.
fn is_fatal(error: &KafkaError) -> bool {
    matches!(error, KafkaError::MessageConsumptionFatal(_))
        || error.rdkafka_error_code() == Some(Code::Fatal)
}
