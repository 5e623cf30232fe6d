#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
pub mod future;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod policy;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{backoff::Backoff, layer::RetryLayer, service::RetryService};
