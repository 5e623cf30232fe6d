//! The layers above a batch, in memory, and what drives them.

use std::{
    convert::Infallible,
    future::{Ready, poll_fn, ready},
    hint::black_box,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use metrics_util::debugging::DebuggingRecorder;
use tidegate::core::{
    Batch, Delivery, Epoch, Error, Frontier, Lease, LeaseOwner, Outcome, Outcomes, Record,
    Responses, Terms, TopicPartition,
};
use tidegate::prelude::{DecodeLayer, FenceLayer, FrontierLayer, QueueConfig, QueueLayer};
use tokio::{
    runtime::Builder,
    task::{coop::unconstrained, yield_now},
    time::Duration,
};
use tower::{Layer as _, Service, ServiceBuilder, service_fn};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

/// Records metrics, and filters events at `info`.
///
/// # Panics
///
/// When something else does, as the second call.
pub fn telemetry() {
    DebuggingRecorder::new().install().expect("nothing else records");
    let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO);
    tracing::subscriber::set_global_default(subscriber).expect("nothing else subscribes");
}

/// Which layers stand above the batches.
#[derive(Clone, Copy, Debug)]
pub enum Layers {
    /// None: batches are made and handed to the handler.
    Direct,
    /// A queue.
    Queue,
    /// And a decoder of a few bytes.
    Decode,
    /// And a fence.
    Fence,
    /// And a frontier: all of them.
    Frontier,
}

impl Layers {
    /// Each has one layer more than the one before it.
    pub const ALL: [Self; 5] =
        [Self::Direct, Self::Queue, Self::Decode, Self::Fence, Self::Frontier];
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What they run through.
    pub layers: Layers,
    /// How many.
    pub deliveries: i64,
    /// The most in a batch.
    pub batch: usize,
    /// The most in flight.
    pub window: usize,
    /// Each batch takes a turn of the runtime, as any real one does: so the
    /// queue stays full, and what is in flight stays in memory.
    pub in_turn: bool,
}

/// Runs it once, on one thread.
///
/// # Panics
///
/// When the system has nothing for a runtime.
pub fn run(load: Load) {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime needs no more");
    runtime.block_on(unconstrained(async {
        match load.layers {
            Layers::Direct => direct(load).await,
            Layers::Queue => queue(load).await,
            Layers::Decode => decoding(load).await,
            Layers::Fence => fenced(load).await,
            Layers::Frontier if load.in_turn => full(load, service_fn(in_turn)).await,
            Layers::Frontier => full(load, Noop).await,
        }
    }));
}

async fn direct(load: Load) {
    let (_owner, lease) = lease();
    let batch = i64::try_from(load.batch).expect("a small number");
    let mut next = 0;
    while next < load.deliveries {
        let deliveries = (next..next + batch).map(|offset| {
            let delivery = Delivery::new(lease.clone(), record(&lease, offset));
            let value = decode(&delivery.record).expect("it never fails");
            delivery.with_value(value).into()
        });
        let deliveries = Batch::new(deliveries.collect()).expect("it is not empty");
        let _ = black_box(Noop.call(deliveries).await);
        next += batch;
    }
}

async fn queue(load: Load) {
    let (_owner, lease) = lease();
    let layer = QueueLayer::by_key(config(load));
    drive(layer.layer(Noop), load, &lease, |delivery| {
        let value = delivery.record.offset;
        delivery.with_value(value)
    })
    .await;
}

async fn decoding(load: Load) {
    let (_owner, lease) = lease();
    let stack = ServiceBuilder::new()
        .layer(DecodeLayer::new(decode))
        .layer(QueueLayer::by_key(config(load)))
        .service(Noop);
    drive(stack, load, &lease, |delivery| delivery).await;
}

async fn fenced(load: Load) {
    let (_owner, lease) = lease();
    let stack = ServiceBuilder::new()
        .layer(FenceLayer::new(lease.clone()))
        .layer(DecodeLayer::new(decode))
        .layer(QueueLayer::by_key(config(load)))
        .service(Noop);
    drive(stack, load, &lease, |delivery| delivery).await;
}

async fn in_turn(batch: Batch<Delivery<i64>>) -> Result<Outcomes, Error> {
    yield_now().await;
    Noop.call(batch).await
}

async fn full<S>(load: Load, inner: S)
where
    S: Service<Batch<Delivery<i64>>, Response = Outcomes, Error = Error>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let (_owner, lease) = lease();
    let stack = ServiceBuilder::new()
        .layer(FrontierLayer::new(Frontier::starting_at(0)))
        .layer(FenceLayer::new(lease.clone()))
        .layer(DecodeLayer::new(decode))
        .layer(QueueLayer::by_key(config(load)))
        .service(inner);
    drive(stack, load, &lease, |delivery| delivery).await;
}

/// What a source does: one future a delivery, polled when woken.
async fn drive<S, R>(mut stack: S, load: Load, lease: &Lease, prepare: impl Fn(Delivery) -> R)
where
    S: Service<R, Error = Error>,
{
    let mut running = Responses::default();
    for offset in 0..load.deliveries {
        let ready = poll_fn(|cx| {
            // Answers first: they give places back.
            running.register(cx);
            running.poll_woken().expect("nothing fails");
            stack.poll_ready(cx)
        });
        ready.await.expect("a queue is never broken");
        let response = stack.call(prepare(Delivery::new(lease.clone(), record(lease, offset))));
        running.push(response.map_ok(|it| drop(black_box(it)))).expect("nothing fails");
    }
    poll_fn(|cx| running.poll_all(cx)).await;
}

fn config(load: Load) -> QueueConfig {
    QueueConfig::default().batch_records(load.batch).records(load.window).bytes(1 << 30)
}

/// A lease that runs out, so that each look at it is a look at the clock.
fn lease() -> (LeaseOwner, Lease) {
    let terms = Terms { session: Some(Duration::from_secs(3_600)), ..Terms::default() };
    Lease::grant_on(TopicPartition::new("transfers", 0), Epoch::new(1, "member"), terms)
}

fn record(lease: &Lease, offset: i64) -> Record {
    Record::new(lease.partition().clone(), offset, Bytes::from_static(b"0123456789abcdef"))
}

#[expect(clippy::unnecessary_wraps, reason = "a decoder may fail")]
fn decode(record: &Record) -> Result<i64, Infallible> {
    Ok(record.offset)
}

#[derive(Clone)]
struct Noop;

impl Service<Batch<Delivery<i64>>> for Noop {
    type Response = Outcomes;
    type Error = Error;
    type Future = Ready<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, batch: Batch<Delivery<i64>>) -> Self::Future {
        ready(Ok(Outcomes::all(Outcome::Applied, black_box(batch.len()))))
    }
}
