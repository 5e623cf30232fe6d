#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod sequencer;
mod service;
mod upkeep;
mod work;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use tidegate_core::sequencer::{Bounds, DeltaError, GapPolicy, WaitingForGap};
pub use tidegate_sql::{
    sequencer::{Aged, Parked, SkipError},
    tables::parked::Waiting,
};

pub use self::{
    error::ReleaseFailed, layer::SequencerLayer, sequencer::Sequencer, service::SequencerService,
    upkeep::Swept,
};
