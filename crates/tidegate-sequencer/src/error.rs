use tidegate_core::{Class, Error};

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

impl From<ReleaseFailed> for Error {
    fn from(failed: ReleaseFailed) -> Self {
        Self::new(Class::Transient, failed)
    }
}
