#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod burial;
mod error;
pub mod future;
mod layer;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod place;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{error::NotHeld, layer::DeadLetterLayer, service::DeadLetterService};
