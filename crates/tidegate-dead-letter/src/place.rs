use tidegate_core::{Outcome, Outcomes};

/// Where a layer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Above decoding: it takes single deliveries.
    Decode,
    /// Under the queue: it takes batches.
    Queue,
}

/// What a place answers with.
pub trait Answer {
    /// The one record that was tried is buried.
    fn buried() -> Self;

    /// Adds the records that were not tried, because they were buried before:
    /// those for which `remembered` says so.
    #[must_use]
    fn with(self, remembered: &[bool]) -> Self;
}

impl Answer for Outcome {
    fn buried() -> Self {
        Self::Buried
    }

    fn with(self, _: &[bool]) -> Self {
        self
    }
}

impl Answer for Outcomes {
    fn buried() -> Self {
        Self::all(Outcome::Buried, 1)
    }

    fn with(self, remembered: &[bool]) -> Self {
        if remembered.is_empty() {
            return self;
        }
        let more = self.has_more();
        let mut tried = self.into_iter();
        // Where a tried one has no outcome, it gets none here: who counts them
        // finds out.
        let each = remembered.iter().filter_map(|remembered| match remembered {
            true => Some(Outcome::Buried),
            false => tried.next(),
        });
        each.collect::<Self>().with_more(more)
    }
}
