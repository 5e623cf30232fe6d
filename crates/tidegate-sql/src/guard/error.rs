use tidegate_core::{Class, Epoch, Error};

/// The epoch guard refused a transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The database says that the partition is somebody else's.
    ///
    /// It may be that this process is the stale one, or that a stale one claimed
    /// the partition late. A membership proof that is sent from now on tells:
    /// with one, the partition is claimed again; without, the lease ends.
    #[error("the partition belongs to {owner}, and not to {claimed}")]
    Taken {
        /// Whose it is, as the database says.
        owner: Epoch,
        /// Who claimed it here.
        claimed: Epoch,
    },
    /// The claim of this process does not count, or not any more: another
    /// transaction was refused just now.
    #[error("the claim of the partition does not count")]
    Unclaimed,
}

impl From<GuardError> for Error {
    fn from(error: GuardError) -> Self {
        Self::new(Class::Transient, error)
    }
}
