//! Kafka topics into database state: each record has its effect once, in order
//! per entity.
//!
//! Tidegate is [Tower](https://docs.rs/tower) middleware for services that
//! consume Kafka and write to a database. A stack of its layers around a plain
//! `async fn(&Txn, &T)` keeps a promise that no Kafka client makes:
//!
//! > Every record has its effect **once**, in **order per entity** (by its
//! > revision; without a sequencer, per key within a partition), and the group's
//! > committed offset never passes a record whose effect is not durable: through
//! > rebalances, crashes, zombies, lost connections and replays.
//!
//! # The stack
//!
//! ```text
//!            Kafka source: one poll thread, one task per assignment
//!                                  │ Delivery
//!  FrontierLayer       admits the offset; completes its ticket on Ok
//!  FenceLayer          refuses when the lease is not active
//!  [DeadLetterLayer]   buries what cannot be decoded
//!  DecodeLayer         Delivery → Delivery<T>, with typed errors
//!  QueueLayer          bounded; lanes by entity; forms batches; bisects
//!                                  │ Batch<Delivery<T>>
//!  [DeadLetterLayer]   buries what can never be applied, while the lane waits
//!  [RetryLayer]        transient failures, with backoff, while the lease lives
//!  InboxLayer          BEGIN · markers · inner · lease check · COMMIT
//!                                  │ InTransaction<Batch<Delivery<T>>>
//!  [EpochGuardLayer]   the database refuses a stale owner
//!  [SequencerLayer]    next: pass · stale: skip · gap: park
//!  effect_fn           the application: async fn(&Txn, &T) -> Result<(), E>
//! ```
//!
//! There is one stack for each assignment, as there is one service for each
//! connection of an HTTP server: the source calls the application's
//! make-service with each partition that it is given. A stack without a
//! frontier or a queue, or with an inbox or a sequencer out of place, does not
//! compile, and the compiler's message names the missing layer.
//!
//! # Example
//!
//! ```
//! use serde::Deserialize;
//! use tidegate::prelude::*;
//! use tower::ServiceBuilder;
//!
//! #[derive(Deserialize)]
//! struct Transfer {
//!     id: u64,
//!     account: String,
//!     revision: i64,
//!     amount: i64,
//! }
//!
//! impl Identified for Transfer {
//!     fn message_id(&self) -> MessageId {
//!         u128::from(self.id).into()
//!     }
//! }
//!
//! impl Sequenced for Transfer {
//!     fn entity(&self) -> &[u8] {
//!         self.account.as_bytes()
//!     }
//!
//!     fn revision(&self) -> i64 {
//!         self.revision
//!     }
//! }
//!
//! async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
//!     let sql = "UPDATE account SET balance = balance + $1 WHERE name = $2";
//!     let values = [transfer.amount.into(), transfer.account.as_str().into()];
//!     txn.execute_raw(Statement::from_sql_and_values(txn.get_database_backend(), sql, values))
//!         .await
//!         .map(drop)
//! }
//!
//! async fn serve(config: KafkaConfig, database: Database) -> Result<(), ServeError> {
//!     let inbox = Inbox::new(database);
//!     let sequencer = Sequencer::parking(Json::<Transfer>::default());
//!     KafkaSource::new(config)
//!         .expect("the configuration is ours")
//!         .subscribe(["transfers"])
//!         .serve(move |assignment: Assignment| {
//!             ServiceBuilder::new()
//!                 .layer(FrontierLayer::new(assignment.frontier()))
//!                 .layer(FenceLayer::new(assignment.lease()))
//!                 .layer(DecodeLayer::json::<Transfer>())
//!                 .layer(QueueLayer::new(QueueConfig::default()))
//!                 .layer(RetryLayer::new(Backoff::default()))
//!                 .layer(InboxLayer::new(inbox.clone()))
//!                 .layer(SequencerLayer::new(sequencer.clone()))
//!                 .service(effect_fn(apply))
//!         })
//!         .with_graceful_shutdown(async { tokio::signal::ctrl_c().await.unwrap_or(()) })
//!         .await
//! }
//! ```
//!
//! # What holds
//!
//! - A committed offset is never above the *frontier*, and the frontier never
//!   passes a record that is not complete.
//! - Marker, revision and effect are in one transaction: all or none. A `COMMIT`
//!   whose answer is lost is resolved by claiming the ids again.
//! - A rebalance waits until running batches have ended, up to a deadline; only
//!   then is it answered, after the last commit. Partitions that stay are not
//!   disturbed.
//! - A partition that is lost is never committed. A process that was stopped and
//!   wakes up later sees by the clock that its lease is over.
//! - Memory is bounded, in records and bytes; a full partition blocks itself
//!   alone.
//! - Nothing is skipped in silence: a record that cannot succeed stops its
//!   partition, visibly, or goes to a dead letter.
//!
//! # What it does not do
//!
//! - **Effects outside the database.** A mail, an HTTP call or a write to
//!   another database is not in the transaction: it may happen twice, or without
//!   the rest. Write down in the transaction that it is to be done, and do it from
//!   there.
//! - **Exactly once into Kafka.** It commits offsets after the database has
//!   committed; it does not put offsets into a producer's transaction.
//! - **Share groups.** Records of a partition have to come to one member, in
//!   order.
//! - **Order across entities**, or across partitions.
//! - **Duplicates of a producer that are farther apart than the inbox
//!   remembers**, where they are pruned.
//!
//! # If you come from elsewhere
//!
//! | there | here |
//! | --- | --- |
//! | **rdkafka's `StreamConsumer`** | |
//! | `consumer.recv()` in a loop | a [`KafkaSource`](kafka::KafkaSource) that calls your stack |
//! | `store_offset`, `commit` | the frontier: nothing to call |
//! | `ConsumerContext::rebalance` | a drain, then the answer: nothing to write |
//! | a `tokio::spawn` per message | lanes of a [`QueueLayer`](queue::QueueLayer) |
//! | **Spring Kafka** | |
//! | `@KafkaListener` | `effect_fn(apply)` |
//! | `@Transactional` on the listener | [`InboxLayer`](inbox::InboxLayer), which also remembers the message |
//! | batch listener | `effect_batch_fn`; batches are formed also for `effect_fn` |
//! | `DefaultErrorHandler`, `BackOff` | [`RetryLayer`](retry::RetryLayer) |
//! | `DeadLetterPublishingRecoverer` | [`DeadLetterLayer`](dead_letter::DeadLetterLayer), with a table or a topic |
//! | `ConsumerSeekAware` | [`GroupAdmin`](kafka::group::GroupAdmin), with the group stopped |
//! | **Kafka Streams** | |
//! | `KTable`, state store, changelog topic | your tables, and the inbox in the same database |
//! | `processing.guarantee=exactly_once_v2` | once in the database, not into topics |
//! | `StreamsUncaughtExceptionHandler` | [`OnFailure`](kafka::OnFailure) |
//!
//! # Features
//!
//! There are none by default. Each layer and each database is one, named as the
//! module below; `full` is all of them but `ssl`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "inbox", feature = "sequencer"))]
mod upkeep;

pub use tidegate_core as core;
#[cfg(feature = "dead-letter")]
pub use tidegate_dead_letter as dead_letter;
#[cfg(feature = "decode")]
pub use tidegate_decode as decode;
#[cfg(feature = "fence")]
pub use tidegate_fence as fence;
#[cfg(feature = "frontier")]
pub use tidegate_frontier as frontier;
#[cfg(feature = "inbox")]
pub use tidegate_inbox as inbox;
#[cfg(feature = "kafka")]
pub use tidegate_kafka as kafka;
#[cfg(feature = "queue")]
pub use tidegate_queue as queue;
#[cfg(feature = "retry")]
pub use tidegate_retry as retry;
#[cfg(feature = "sequencer")]
pub use tidegate_sequencer as sequencer;
#[cfg(feature = "sql")]
pub use tidegate_sql as sql;

#[cfg(all(feature = "inbox", feature = "sequencer"))]
pub use self::upkeep::Upkeep;

/// What an application needs to write down a stack.
pub mod prelude {
    pub use tidegate_core::{
        Class, Culprit, Delivery, Error, Identified, MessageId, Outcome, Record, Sequenced,
        TopicPartition,
    };
    #[cfg(feature = "dead-letter")]
    pub use tidegate_dead_letter::DeadLetterLayer;
    #[cfg(feature = "decode")]
    pub use tidegate_decode::DecodeLayer;
    #[cfg(feature = "json")]
    pub use tidegate_decode::Json;
    #[cfg(feature = "fence")]
    pub use tidegate_fence::FenceLayer;
    #[cfg(feature = "frontier")]
    pub use tidegate_frontier::FrontierLayer;
    #[cfg(feature = "inbox")]
    pub use tidegate_inbox::{Inbox, InboxLayer, Retention};
    #[cfg(feature = "kafka")]
    pub use tidegate_kafka::{Assignment, KafkaConfig, KafkaSource, ServeError};
    #[cfg(feature = "queue")]
    pub use tidegate_queue::{QueueConfig, QueueLayer};
    #[cfg(feature = "retry")]
    pub use tidegate_retry::{Backoff, RetryLayer};
    #[cfg(feature = "sequencer")]
    pub use tidegate_sequencer::{Sequencer, SequencerLayer};
    #[cfg(feature = "sql")]
    pub use tidegate_sql::{
        Database, DatabaseOptions, DbErr, DeadLetterTable, Effect, EffectBatch, EffectError,
        EpochGuardLayer, Txn, effect, effect_batch, effect_batch_fn, effect_fn,
    };
    // What raw statements and savepoints of a `Txn` need of SeaORM.
    #[cfg(feature = "sql")]
    pub use tidegate_sql::{ConnectionTrait, Statement, TransactionTrait};
}
