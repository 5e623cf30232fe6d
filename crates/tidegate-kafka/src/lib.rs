#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod assignment;
mod config;
mod dead_letter;
mod driver;
mod error;
mod ffi;
mod gauges;
pub mod group;
#[cfg(feature = "metrics")]
mod metrics;
mod preflight;
mod serve;
mod session;
mod source;
mod status;
mod stop;
mod task;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{
    assignment::Assignment,
    config::{ConfigError, KafkaConfig, OnFailure, StartPosition},
    dead_letter::{DeadLetterTopic, NotBuried},
    driver::{PositionError, ReadError},
    error::ServeError,
    preflight::Unavailable,
    serve::Serve,
    source::KafkaSource,
    status::{MemberStatus, PartitionState, PartitionStatus, Status},
    task::Panicked,
};
