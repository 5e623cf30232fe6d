use tidegate_core::{BoxError, Class, Error};

/// The decoder did not find a value in the record.
#[derive(Debug, thiserror::Error)]
#[error("the record cannot be decoded")]
#[non_exhaustive]
pub struct Undecodable {
    /// The decoder's own error.
    #[source]
    pub cause: BoxError,
}

impl From<Undecodable> for Error {
    fn from(undecodable: Undecodable) -> Self {
        Self::new(Class::Poison, undecodable)
    }
}
