#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod future;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{layer::FrontierLayer, service::FrontierService};
