use tidegate_core::{Class, Error, MessageId};
use tidegate_sql::DbErr;

/// A delta can never be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// Its revision belongs to another message, which was applied, or waits.
    #[error("revision {revision} of `{}` is message {known}, and not {found}", entity.escape_ascii())]
    Conflict {
        /// The entity.
        entity: Vec<u8>,
        /// The revision.
        revision: i64,
        /// The message that has it.
        known: MessageId,
        /// The message that came.
        found: MessageId,
    },
    /// It came before its predecessor, and is not to wait for it.
    #[error("revision {revision} of `{}` came before revision {expected}", entity.escape_ascii())]
    Gap {
        /// The entity.
        entity: Vec<u8>,
        /// The revision.
        revision: i64,
        /// The revision that should have come.
        expected: i64,
    },
    /// Its revision lies before all that an entity can have.
    #[error("`{}` has no revision {revision}", entity.escape_ascii())]
    NoRevision {
        /// The entity.
        entity: Vec<u8>,
        /// The revision.
        revision: i64,
    },
}

/// So many deltas wait for a gap to be filled that no more are parked.
///
/// The partition stops, and is tried again. What waits is listed by
/// [`Parked::list`](crate::Parked::list); [`Parked::skip_to`](crate::Parked::skip_to)
/// gives a revision up that will not come, and in the end age does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` waits for revision {expected}, and as many deltas are parked as may be",
    entity.escape_ascii()
)]
#[non_exhaustive]
pub struct WaitingForGap {
    /// The entity.
    pub entity: Vec<u8>,
    /// The revision that it waits for.
    pub expected: i64,
}

/// A transaction failed, and it is not known to be the fault of the batch:
/// parked deltas were released in it.
///
/// They are tried apart from now on. One that fails alone is withheld.
#[derive(Clone, Debug, thiserror::Error)]
#[error("a transaction that released parked deltas failed")]
#[non_exhaustive]
pub struct ReleaseFailed {
    /// How it failed.
    #[source]
    pub cause: Error,
}

/// An entity cannot go on at another revision.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkipError {
    /// Nothing has come of it yet.
    #[error("nothing is known of the entity")]
    Unknown,
    /// It has gone on.
    #[error("the entity stands at revision {revision} already")]
    Backwards {
        /// The revision that was applied last.
        revision: i64,
    },
    /// The database failed.
    #[error("the entity cannot be changed")]
    Database(#[from] DbErr),
}

impl From<DeltaError> for Error {
    fn from(error: DeltaError) -> Self {
        Self::new(Class::Poison, error)
    }
}

impl From<WaitingForGap> for Error {
    fn from(waiting: WaitingForGap) -> Self {
        Self::new(Class::Fatal, waiting)
    }
}

impl From<ReleaseFailed> for Error {
    fn from(failed: ReleaseFailed) -> Self {
        Self::new(Class::Transient, failed)
    }
}
