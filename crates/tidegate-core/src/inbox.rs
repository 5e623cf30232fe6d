//! What an inbox decides: which messages of a batch are new, and what of a
//! partition may be forgotten.
//!
//! `tidegate-inbox` is built on this; an application has no need of it.

mod history;
mod messages;

pub use self::{
    history::{History, Pruned},
    messages::{ConflictAt, Decided, Marker, Messages, New},
};
