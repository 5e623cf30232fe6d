//! What an inbox decides: which messages of a batch are new, what of a partition
//! may be forgotten, and when nothing but news is expected.
//!
//! `tidegate-inbox` is built on this; an application has no need of it.

mod history;
mod messages;
mod outlook;

pub use self::{
    history::{History, Pruned},
    messages::{ConflictAt, Decided, Marker, Messages, New},
    outlook::Outlook,
};
