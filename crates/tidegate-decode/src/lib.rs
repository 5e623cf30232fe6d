#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
#[cfg(feature = "json")]
mod json;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

#[cfg(feature = "json")]
pub use self::json::{Json, JsonError};
pub use self::{error::Undecodable, layer::DecodeLayer, service::DecodeService};
