use super::{Delta, Reason};
use crate::{Class, Error, MessageId};

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
/// `Parked::list`; `Parked::skip_to` gives a revision up that will not come, and
/// in the end age does.
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

// ===== impl Reason =====

impl Reason {
    /// The error of a delta that cannot be taken for this reason.
    #[must_use]
    pub fn error(self, delta: &Delta<'_>) -> Error {
        let Delta { entity, revision, mark } = *delta;
        let entity = entity.to_vec();
        match self {
            Self::Conflict { other } => {
                let (known, found) = (other.id, mark.id);
                DeltaError::Conflict { entity, revision, known, found }.into()
            }
            Self::Gap { expected } => DeltaError::Gap { entity, revision, expected }.into(),
            Self::NoRevision => DeltaError::NoRevision { entity, revision }.into(),
            Self::Full { expected } => WaitingForGap { entity, expected }.into(),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::{Delta, Reason};
    use crate::{Class, Fingerprint, Mark, MessageId};

    #[test]
    fn a_delta_that_cannot_be_taken_is_poison_unless_there_is_no_room_for_it() {
        let mark = |id: u128| Mark { id: id.into(), fingerprint: Fingerprint::of(b"") };
        let delta = Delta { entity: b"a\xff", revision: 7, mark: mark(1) };
        let ids = [2, 1].map(|id: u128| MessageId::from(id));
        for (reason, class, says) in [
            (
                Reason::Conflict { other: mark(2) },
                Class::Poison,
                format!("revision 7 of `a\\xff` is message {}, and not {}", ids[0], ids[1]),
            ),
            (
                Reason::Gap { expected: 5 },
                Class::Poison,
                r"revision 7 of `a\xff` came before revision 5".to_owned(),
            ),
            (Reason::NoRevision, Class::Poison, r"`a\xff` has no revision 7".to_owned()),
            (
                Reason::Full { expected: 5 },
                Class::Fatal,
                r"`a\xff` waits for revision 5, and as many deltas are parked as may be".to_owned(),
            ),
        ] {
            let error = reason.error(&delta);
            let source = error.source().expect("each has a type of its own");
            assert_eq!((error.class(), source.to_string()), (class, says));
        }
    }
}
