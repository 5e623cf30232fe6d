//! What Tidegate costs, as ratios to what somebody would write without it.
//!
//! A row (`rows`) runs programs of two kinds in turn, on the same topic: a stack
//! of Tidegate, and a small consumer loop as its library's documentation would
//! have it. Each program (`programs`) is a process of its own, checked after
//! each run, so that a figure of a run that was wrong is never seen. The layers
//! alone are in [`micro`].

mod allocations;
mod bench;
mod cli;
mod delay;
mod job;
mod live;
mod measure;
mod meter;
pub mod micro;
mod peers;
mod programs;
mod progress;
mod report;
mod rows;
mod schema;
mod services;
mod topic;
mod transfer;

pub use self::cli::main;
