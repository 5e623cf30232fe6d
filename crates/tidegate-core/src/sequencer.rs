//! What a sequencer decides: which deltas of a batch are next, stale or early,
//! which parked ones go on with them, and which of those are at fault.
//!
//! `tidegate-sequencer` is built on this; an application has no need of it.

mod census;
mod error;
mod plan;
mod rules;
mod standing;
mod suspects;

pub use self::{
    census::Census,
    error::{DeltaError, WaitingForGap},
    plan::{Delta, Deltas, Met, Passed, Plan, Reason, Refused, Verdict},
    rules::{Bounds, GapPolicy, Rules},
    standing::{Key, Run, Standing},
    suspects::{Guilty, Suspects},
};
