//! A group on an embedded broker, with members whose work the test decides.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::IntoFuture as _,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tidegate_core::{Class, Delivery, Error, Frontier, Lease, Outcome, Recorded, TopicPartition};
use tidegate_kafka::{Assignment, KafkaConfig, KafkaSource, ServeError, Status};
use tidegate_testkit::{Broker, BrokerConfig, NewRecord};
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tower_service::Service;

pub(crate) const TOPIC: &str = "transfers";
pub(crate) const GROUP: &str = "ledger";

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with one topic and a group that starts at 0.
pub(crate) fn broker(partitions: i32, records: i64) -> Arc<Broker> {
    // Sessions long enough for a machine that is busy with other tests.
    broker_with(BrokerConfig::default().with_session(SESSION), partitions, records)
}

pub(crate) const SESSION: Duration = Duration::from_secs(30);

pub(crate) fn broker_with(config: BrokerConfig, partitions: i32, records: i64) -> Arc<Broker> {
    let broker = Broker::start(config.with_topic(TOPIC, partitions)).expect("it starts");
    broker.begin_group(GROUP, [TOPIC]).expect("the group has no members");
    produce(&broker, partitions, records);
    Arc::new(broker)
}

/// Writes that many records to each partition.
pub(crate) fn produce(broker: &Broker, partitions: i32, records: i64) {
    let of = |partition| (0..records).map(move |n| NewRecord::new(partition, n.to_string()));
    broker.produce(TOPIC, (0..partitions).flat_map(of)).expect("they are written");
}

/// The configuration of a member, quick enough for tests.
pub(crate) fn config(broker: &Broker) -> KafkaConfig {
    KafkaConfig::new(broker.bootstrap(), GROUP)
        .property("group.protocol", "consumer")
        .property("fetch.wait.max.ms", "20")
        .group_session(SESSION, Duration::from_millis(100))
        .commit_interval(Duration::from_millis(100))
        // A partition that stands still is to be seen, not helped.
        .stall_after(Duration::from_secs(600))
        // The embedded broker has no controller, and so no ids of topics.
        .topic_check(None)
}

/// What a record is, for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seen {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// What happened to a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) seen: Seen,
    /// Tells stacks apart.
    pub(crate) stack: u64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

type Work =
    Arc<dyn Fn(Seen) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + Sync>;

/// All that the members of a test have done.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Done>>>);

impl Journal {
    pub(crate) fn done(&self) -> Vec<Done> {
        self.0.lock().expect("no test panics while it holds this").clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.done().len()
    }

    /// How often each record was done.
    pub(crate) fn times(&self) -> BTreeMap<Seen, usize> {
        let mut times = BTreeMap::new();
        self.done().iter().for_each(|done| *times.entry(done.seen).or_default() += 1);
        times
    }

    /// Each record of the topic was done once.
    #[track_caller]
    pub(crate) fn assert_exact(&self, broker: &Broker) {
        let times = self.times();
        let repeated: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(repeated.is_empty(), "done more than once: {repeated:?}");
        self.assert_nothing_missing(broker);
    }

    #[track_caller]
    pub(crate) fn assert_nothing_missing(&self, broker: &Broker) {
        let times = self.times();
        let ends = broker.end_offsets(TOPIC).expect("the broker answers");
        let all = |(&partition, &end): (&i32, &i64)| {
            (0..end).map(move |offset| Seen { partition, offset })
        };
        let missing: BTreeSet<_> =
            ends.iter().flat_map(all).filter(|seen| !times.contains_key(seen)).collect();
        assert!(missing.is_empty(), "not done: {missing:?}");
    }

    /// No two stacks worked on a partition at the same time.
    #[track_caller]
    pub(crate) fn assert_no_overlap(&self) {
        let mut done = self.done();
        done.sort_by_key(|done| done.began);
        let mut running: BTreeMap<i32, Vec<Done>> = BTreeMap::new();
        for it in done {
            let beside = running.entry(it.seen.partition).or_default();
            beside.retain(|other| other.ended > it.began);
            let other = beside.iter().find(|other| other.stack != it.stack);
            assert!(other.is_none(), "{it:?} ran beside {other:?}");
            beside.push(it);
        }
    }
}

/// A member of the group, in this process.
pub(crate) struct Member {
    pub(crate) status: Status,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Member {
    pub(crate) fn start<F, W>(config: KafkaConfig, journal: &Journal, work: W) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
        W: Fn(Seen) -> F + Send + Sync + 'static,
    {
        Self::start_on(TOPIC, config, journal, work)
    }

    pub(crate) fn start_on<F, W>(
        topic: &str,
        config: KafkaConfig,
        journal: &Journal,
        work: W,
    ) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
        W: Fn(Seen) -> F + Send + Sync + 'static,
    {
        let work: Work = Arc::new(move |seen| Box::pin(work(seen)));
        let journal = journal.clone();
        let stack = move |assignment| Stack::new(&assignment, &journal, &work);
        Self::serve_on(topic, config, stack)
    }

    pub(crate) fn serve<M, S>(config: KafkaConfig, make_service: M) -> Self
    where
        M: FnMut(Assignment) -> S + Send + 'static,
        S: Service<Delivery, Response = Recorded, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        Self::serve_on(TOPIC, config, make_service)
    }

    fn serve_on<M, S>(topic: &str, config: KafkaConfig, make_service: M) -> Self
    where
        M: FnMut(Assignment) -> S + Send + 'static,
        S: Service<Delivery, Response = Recorded, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        let source = KafkaSource::new(config).expect("it is valid").subscribe([topic]);
        let status = source.status();
        let (stop, stopped) = oneshot::channel();
        let serve = source.serve(make_service).with_graceful_shutdown(async {
            // A sender that is dropped asks for the end too.
            let _ = stopped.await;
        });
        Self { status, stop: Some(stop), serving: tokio::spawn(serve.into_future()) }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn end(mut self) -> Result<(), ServeError> {
        self.stop.take();
        self.ended().await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) -> Result<(), ServeError> {
        let ended = timeout(PATIENCE, self.serving).await.expect("it ends in time");
        ended.expect("it does not panic")
    }

    /// Drops what serves.
    pub(crate) fn abandon(self) {
        self.serving.abort();
    }

    pub(crate) fn partition(&self, partition: i32) -> Option<tidegate_kafka::PartitionStatus> {
        self.status.partition(&TopicPartition::new(TOPIC, partition))
    }
}

/// A stack of one service: it admits, works, and completes.
pub(crate) struct Stack {
    frontier: Frontier,
    lease: Lease,
    journal: Journal,
    work: Work,
    number: u64,
    // As many at a time as a queue would hold.
    places: Arc<Semaphore>,
    place: Option<tokio::sync::OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = tokio::sync::OwnedSemaphorePermit> + Send>>>,
}

static STACKS: AtomicU64 = AtomicU64::new(0);

impl Stack {
    fn new(assignment: &Assignment, journal: &Journal, work: &Work) -> Self {
        Self {
            frontier: assignment.frontier(),
            lease: assignment.lease(),
            journal: journal.clone(),
            work: Arc::clone(work),
            number: STACKS.fetch_add(1, Ordering::Relaxed),
            places: Arc::new(Semaphore::new(16)),
            place: None,
            waiting: None,
        }
    }
}

impl Service<Delivery> for Stack {
    type Response = Recorded;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Recorded, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.place.is_none() {
            let places = Arc::clone(&self.places);
            let waiting = self.waiting.get_or_insert_with(|| {
                Box::pin(async { places.acquire_owned().await.expect("it is never closed") })
            });
            self.place = Some(std::task::ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let place = self.place.take().expect("it was readied");
        let ticket = self.frontier.admit(delivery.record.offset);
        let (journal, stack, lease) = (self.journal.clone(), self.number, self.lease.clone());
        let seen =
            Seen { partition: delivery.record.partition.partition, offset: delivery.record.offset };
        let work = Arc::clone(&self.work);
        Box::pin(async move {
            let _place = place;
            let ticket = ticket.map_err(|error| Error::new(Class::Fatal, error))?;
            if !lease.is_active() {
                return Err(Error::new(Class::Fenced, "the lease is not active"));
            }
            let began = Instant::now();
            if let Err(error) = work(seen).await {
                ticket.abandon(error.clone());
                return Err(error);
            }
            let done = Done { seen, stack, began, ended: Instant::now() };
            journal.0.lock().expect("no test panics while it holds this").push(done);
            // The delivery lives as long as the work on it.
            drop(delivery);
            Ok(ticket.complete(Outcome::Applied))
        })
    }
}

/// Work that takes so long.
pub(crate) fn takes(
    millis: u64,
) -> impl Fn(Seen) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    move |_| {
        Box::pin(async move {
            if millis > 0 {
                sleep(Duration::from_millis(millis)).await;
            }
            Ok(())
        })
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "in time: {what}, at {place}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until the group has committed to the end of the topic.
pub(crate) async fn consumed(broker: &Broker) {
    broker.consumed(GROUP, TOPIC, PATIENCE).await.expect("all is consumed in time");
}

/// A broker whose group has committed nothing.
pub(crate) fn without_offsets(partitions: i32, records: i64) -> Arc<Broker> {
    let config = BrokerConfig::default().with_session(SESSION).with_topic(TOPIC, partitions);
    let broker = Broker::start(config).expect("it starts");
    produce(&broker, partitions, records);
    Arc::new(broker)
}
