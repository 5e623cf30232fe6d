use std::{fmt, vec};

/// How a delivery ended well. Each of these completes its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "an outcome completes a ticket"]
#[non_exhaustive]
pub enum Outcome {
    /// Its effect is in the database, with its marker.
    Applied,
    /// Its effect was there before.
    Duplicate,
    /// A later revision of its entity was applied already.
    Stale,
    /// It is stored until its predecessor comes.
    Parked,
    /// It is stored as a dead letter.
    Buried,
    /// It was decided so long ago that its marker is pruned.
    TooOld,
}

/// The outcomes of a batch, one for each delivery, in the batch's order.
///
/// There is no per-item error here. A batch is one transaction, so it fails as
/// a whole, and the queue takes it apart until the record at fault is alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "outcomes complete tickets"]
pub struct Outcomes {
    each: Vec<Outcome>,
    more: bool,
}

// ===== impl Outcome =====

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Applied, Self::Duplicate, Self::Stale, Self::Parked, Self::Buried, Self::TooOld];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Parked => "parked",
            Self::Buried => "buried",
            Self::TooOld => "too_old",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// ===== impl Outcomes =====

impl Outcomes {
    /// The same outcome for all of `count` deliveries.
    pub fn all(outcome: Outcome, count: usize) -> Self {
        Self { each: vec![outcome; count], more: false }
    }

    /// Says whether there is more to do that this batch set free, and that a
    /// further transaction should do.
    ///
    /// A sequencer says so when it released as many parked deltas as one
    /// transaction may; the inbox then runs more transactions before it
    /// answers.
    pub fn with_more(self, more: bool) -> Self {
        Self { more, ..self }
    }

    /// Whether there is more to do that this batch set free.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The number of outcomes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// The outcomes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Outcome> + '_ {
        self.each.iter().copied()
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self { each: outcomes.into_iter().collect(), more: false }
    }
}

impl IntoIterator for Outcomes {
    type Item = Outcome;
    type IntoIter = vec::IntoIter<Outcome>;

    fn into_iter(self) -> Self::IntoIter {
        self.each.into_iter()
    }
}
