//! The epoch guard: the database refuses a stale owner.

mod claim;
mod error;
mod keeper;
mod layer;
mod service;

pub(crate) use self::claim::Owner;
pub use self::{error::GuardError, layer::EpochGuardLayer, service::EpochGuardService};
