use std::{fmt, str::FromStr};

/// A moment in the life of a record at which a test may want to stop it.
///
/// They are listed in the order in which a record comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Point {
    /// The offset is admitted, nothing else has happened.
    ///
    /// A [`ProbeLayer`](super::ProbeLayer) right under the frontier.
    Admitted,
    /// A batch is made, its transaction is not begun.
    ///
    /// A layer between queue, or retry, and inbox.
    BeforeBegin,
    /// The messages are marked, the effect is not made.
    ///
    /// A layer between inbox and sequencer.
    AfterMarker,
    /// The effect is made, the transaction is not committed.
    ///
    /// A layer around the effect's service.
    AfterEffect,
    /// `COMMIT` was sent, its reply is not read.
    ///
    /// Not for a layer: a proxy between the process and the database holds the
    /// reply.
    CommitSent,
    /// The transaction is committed, the tickets are not completed.
    ///
    /// A layer between queue, or retry, and inbox.
    AfterCommit,
    /// The ticket is completed; the driver has not taken the answer.
    ///
    /// A layer above the frontier. A driver may commit the offset meanwhile:
    /// to be sure that it is not committed, hold the commit in a proxy.
    Completed,
    /// The commit of the offset was sent, its answer is not read.
    ///
    /// Not for a layer: a proxy between the process and the broker holds the
    /// answer.
    OffsetCommitSent,
}

/// A text does not name a point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a probe point")]
pub struct NotAPoint(pub(super) String);

/// When a layer looks at its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Before the inner service is called.
    Before,
    /// After the inner service has answered well.
    After,
}

// ===== impl Point =====

impl Point {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Admitted,
        Self::BeforeBegin,
        Self::AfterMarker,
        Self::AfterEffect,
        Self::CommitSent,
        Self::AfterCommit,
        Self::Completed,
        Self::OffsetCommitSent,
    ];

    /// Its name in commands and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::BeforeBegin => "before-begin",
            Self::AfterMarker => "after-marker",
            Self::AfterEffect => "after-effect",
            Self::CommitSent => "commit-sent",
            Self::AfterCommit => "after-commit",
            Self::Completed => "completed",
            Self::OffsetCommitSent => "offset-commit-sent",
        }
    }

    /// Whether a layer can stand there.
    pub(super) fn side(self) -> Option<Side> {
        match self {
            Self::Admitted | Self::BeforeBegin | Self::AfterMarker => Some(Side::Before),
            Self::AfterEffect | Self::AfterCommit | Self::Completed => Some(Side::After),
            Self::CommitSent | Self::OffsetCommitSent => None,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Point {
    type Err = NotAPoint;

    fn from_str(text: &str) -> Result<Self, NotAPoint> {
        let point = Self::ALL.into_iter().find(|point| point.as_str() == text);
        point.ok_or_else(|| NotAPoint(text.to_owned()))
    }
}
