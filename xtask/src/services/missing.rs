/// Something that cannot be had on this machine as it is.
///
/// Prints as one line that says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {remedy}")]
#[non_exhaustive]
pub struct Missing {
    /// What is not there.
    pub what: String,
    /// What would help.
    pub remedy: String,
}

impl Missing {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}
