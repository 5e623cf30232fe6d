#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod error;
pub mod future;
mod lane;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{config::QueueConfig, error::QueueError, layer::QueueLayer, service::QueueService};
