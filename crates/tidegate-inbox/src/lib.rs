#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod retention;
mod service;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use self::{
    error::{Conflict, TopicChanged},
    layer::{Inbox, InboxLayer},
    retention::{Pruned, Retention},
    service::InboxService,
};
