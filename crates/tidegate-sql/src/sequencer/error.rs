use crate::DbErr;

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
