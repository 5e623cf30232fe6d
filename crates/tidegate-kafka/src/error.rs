use tidegate_core::Error;

/// A source ended, and not because it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A partition stopped, and the source was configured to end then.
    #[error("a partition stopped")]
    Stopped(#[source] Error),
    /// Another process has our static identity, `group.instance.id`, or the
    /// broker has not released it within a session timeout.
    #[error(
        "another member of the group has this `group.instance.id`: {reason}; give each process its own"
    )]
    #[non_exhaustive]
    Fenced {
        /// What the broker says.
        reason: String,
    },
    /// The client could not be made, or does not subscribe.
    #[error("the Kafka client cannot be used: {0}")]
    Client(String),
    /// The driver's thread did not end in time, or could not be started.
    #[error("the driver's thread {0}")]
    Thread(&'static str),
}
