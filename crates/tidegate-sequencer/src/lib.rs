#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod parked;
mod plan;
mod sequencer;
mod service;
mod suspects;
mod sweep;
mod work;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

pub use tidegate_sql::tables::parked::Waiting;

pub use self::{
    error::{DeltaError, ReleaseFailed, SkipError, WaitingForGap},
    layer::SequencerLayer,
    parked::{Aged, Parked},
    sequencer::{Bounds, GapPolicy, Sequencer},
    service::SequencerService,
    sweep::Swept,
};
