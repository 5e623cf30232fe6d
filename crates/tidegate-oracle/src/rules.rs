use serde::{Deserialize, Serialize};

/// What was promised: which layers stood in the stack, and how far it ran.
///
/// The default is the whole promise: an inbox, a strict sequencer from
/// revision 1 on, dead letters, and everything consumed.
///
/// An experiment that leaves a layer out to see that its absence is noticed
/// keeps the promise that the layer would have kept: it turns off what cannot
/// be read, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rules {
    /// An inbox marks messages, so that each is applied once.
    pub inbox: bool,
    /// A sequencer knows where entities stand, and parks early deltas.
    pub sequencer: bool,
    /// In which order an entity's effects are made.
    pub order: Order,
    /// What cannot succeed goes to a table of dead letters. Without, it stops
    /// its partition.
    pub dead_letters: bool,
    /// Parked deltas may become dead letters by their age.
    pub parked_age: bool,
    /// An epoch guard refuses the writes of a stale owner. Without, they are
    /// counted.
    pub guard: bool,
    /// The group has read to the end. Without, only what lies below a
    /// committed offset must be there.
    pub consumed: bool,
    /// Committed offsets may go back, and are counted then.
    pub may_go_back: bool,
}

/// In which order an entity's effects are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Order {
    /// By key within a partition, as they were written.
    AsWritten,
    /// Each revision after the one before it, early ones parked.
    Strict {
        /// The first revision of an entity.
        first: i64,
    },
    /// Each revision after the one before it, early ones refused.
    Reject {
        /// The first revision of an entity.
        first: i64,
    },
    /// Revisions go up, and may leave some out.
    LastWriteWins,
}

// ===== impl Rules =====

impl Default for Rules {
    fn default() -> Self {
        Self {
            inbox: true,
            sequencer: true,
            order: Order::Strict { first: 1 },
            dead_letters: true,
            parked_age: false,
            guard: false,
            consumed: true,
            may_go_back: false,
        }
    }
}

impl Rules {
    /// There is no inbox.
    #[must_use]
    pub fn without_inbox(self) -> Self {
        Self { inbox: false, ..self }
    }

    /// The order in which an entity's effects are made.
    #[must_use]
    pub fn ordered(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// There is no sequencer, and the order is the one of the topic.
    ///
    /// To see that effects come in the wrong order without one, promise
    /// another [order](Self::ordered) after this.
    #[must_use]
    pub fn without_sequencer(self) -> Self {
        Self { sequencer: false, ..self }.ordered(Order::AsWritten)
    }

    /// There are no dead letters.
    #[must_use]
    pub fn without_dead_letters(self) -> Self {
        Self { dead_letters: false, ..self }
    }

    /// Parked deltas may become dead letters by their age.
    #[must_use]
    pub fn parked_may_age(self) -> Self {
        Self { parked_age: true, ..self }
    }

    /// There is an epoch guard.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { guard: true, ..self }
    }

    /// The group has not read to the end.
    #[must_use]
    pub fn unfinished(self) -> Self {
        Self { consumed: false, ..self }
    }

    /// Committed offsets may go back.
    #[must_use]
    pub fn tolerating_steps_back(self) -> Self {
        Self { may_go_back: true, ..self }
    }
}
