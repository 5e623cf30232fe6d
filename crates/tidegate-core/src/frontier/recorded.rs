use crate::Outcome;

/// Proof that an outcome was recorded in a frontier.
///
/// Only a completed [`Ticket`](crate::Ticket) makes it, and a source asks for
/// it: without a frontier, nothing would ever be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    outcome: Outcome,
    late: bool,
}

/// A response that proves that its outcome was recorded.
#[diagnostic::on_unimplemented(
    message = "the stack has no frontier: its response is `{Self}`, not `Recorded`",
    label = "a source commits what a frontier recorded",
    note = "write `FrontierLayer` first, before all other layers"
)]
pub trait IsRecorded {
    /// The proof.
    fn recorded(self) -> Recorded;
}

// ===== impl Recorded =====

impl Recorded {
    pub(super) fn new(outcome: Outcome, late: bool) -> Self {
        Self { outcome, late }
    }

    /// What was recorded.
    pub fn outcome(self) -> Outcome {
        self.outcome
    }

    /// Whether it came too late to move the frontier, whose lease had ended.
    #[must_use]
    pub fn is_late(self) -> bool {
        self.late
    }
}

impl IsRecorded for Recorded {
    fn recorded(self) -> Recorded {
        self
    }
}
