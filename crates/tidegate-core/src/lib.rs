//! Tidegate's values and state machines, with no I/O, no tasks and no services.
//!
//! Everything here is what the layers, the SQL side and the Kafka driver talk
//! about to each other. An application meets most of it through the facade,
//! the `tidegate` crate.
//!
//! | what | types |
//! | --- | --- |
//! | what is read | [`Record`], [`TopicPartition`], [`Headers`] |
//! | what is handed on | [`Delivery`], [`Batch`], [`BatchSize`], [`Decoder`] |
//! | what waits | [`Lanes`], [`Intake`], [`Lane`], [`Answer`], [`Volume`] |
//! | what is awaited | [`Responses`] |
//! | who may work | [`Lease`], [`LeaseOwner`], [`LeaseState`], [`Epoch`] |
//! | what is finished | [`Frontier`], [`Ticket`], [`Recorded`] |
//! | how it ended | [`Outcome`], [`Outcomes`], [`Error`], [`Class`], [`Culprit`] |
//! | who a message is | [`MessageId`], [`Fingerprint`], [`Identified`], [`Identify`], [`Sequenced`] |
//! | what cannot succeed | [`DeadLetters`] |
//! | what is decided about a batch | [`inbox`], [`sequencer`] |
//!
//! # A lease and its frontier
//!
//! ```
//! use tidegate_core::{Epoch, Frontier, Lease, Outcome, TopicPartition};
//!
//! let partition = TopicPartition::new("transfers", 0);
//! let (owner, lease) = Lease::grant(partition, Epoch::new(4, "member-a"));
//! let frontier = Frontier::starting_at(10);
//!
//! // Two records are delivered; the later one is finished first.
//! let first = frontier.admit(10)?;
//! let second = frontier.admit(11)?;
//! second.complete(Outcome::Applied);
//! assert_eq!(frontier.offset(), 10, "a hole is not passed");
//! first.complete(Outcome::Applied);
//! assert_eq!(frontier.offset(), 12);
//!
//! owner.drain();
//! assert!(!lease.is_active() && lease.is_held());
//! # Ok::<(), tidegate_core::OutOfOrder>(())
//! ```

mod batch;
mod batch_size;
mod dead_letter;
mod decoder;
mod delivery;
mod error;
mod frontier;
mod future;
mod identity;
pub mod inbox;
mod lanes;
mod lease;
mod mark;
mod message;
mod outcome;
mod ready;
mod record;
mod request;
mod responses;
pub mod sequencer;
mod sync;

pub use self::{
    batch::Batch,
    batch_size::BatchSize,
    dead_letter::DeadLetters,
    decoder::Decoder,
    delivery::Delivery,
    error::{BoxError, Class, Classify, Culprit, Error},
    frontier::{Abandoned, Frontier, IsRecorded, OutOfOrder, Recorded, Standing, Ticket},
    future::IntoError,
    identity::{ByHeader, ByKey, ByOffset, ByValue, Identify, NoIdentity},
    lanes::{Answer, Intake, Lane, Lanes, Volume},
    lease::{Condition, Epoch, Lease, LeaseOwner, LeaseState, Terms, TopicId},
    mark::Mark,
    message::{Fingerprint, Identified, MessageId, Sequenced},
    outcome::{Outcome, Outcomes},
    ready::take_ready,
    record::{Header, Headers, Record, TopicPartition},
    request::{BatchRequest, SingleRequest},
    responses::Responses,
};
