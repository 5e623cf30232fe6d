#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod evidence;
mod findings;
mod judge;
#[cfg(feature = "kafka")]
mod kafka;
pub mod ledger;
mod log;
mod place;
mod plan;
mod rules;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tables;

#[cfg(feature = "kafka")]
pub use self::kafka::{GroupWatch, Kafka, KafkaFailure};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::tables::{Queries, Tables, TablesFailure};

pub use self::{
    evidence::{Balance, Committed, Effect, Evidence, Floor, Marker, Parked, Position},
    findings::{Counts, Findings, Verdict, Violation, ViolationKind},
    judge::judge,
    log::{Bounds, Input, Log, Meaning, Message, MessageId, NotAnId, RawRecord},
    place::{Partition, Place},
    plan::{Due, Plan},
    rules::{Order, Rules},
};
