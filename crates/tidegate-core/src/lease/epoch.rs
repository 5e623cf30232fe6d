use std::{cmp::Ordering, fmt, sync::Arc};

/// Who an assignment belongs to, as the broker knows it.
///
/// Epochs of one group are compared by their generation. Two of the same
/// generation are equal if the member is the same, and else not to be compared:
/// a static member that was restarted has its old generation and a new id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The group's generation, or under the consumer protocol the member epoch.
    pub generation: i32,
    /// The member's id.
    pub member: Arc<str>,
}

/// The id that the broker gave a topic when it was made.
///
/// A topic that was deleted and made anew has another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicId(Arc<str>);

// ===== impl Epoch =====

impl Epoch {
    /// Names an epoch.
    #[must_use]
    pub fn new(generation: i32, member: impl Into<Arc<str>>) -> Self {
        Self { generation, member: member.into() }
    }
}

impl PartialOrd for Epoch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.generation.cmp(&other.generation) {
            Ordering::Equal if self.member != other.member => None,
            ordering => Some(ordering),
        }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {} of {}", self.generation, self.member)
    }
}

// ===== impl TopicId =====

impl TopicId {
    /// An id, as the broker writes it: 22 characters of base 64.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Epoch, Ordering};

    #[test]
    fn epochs_are_compared_by_generation_and_equal_only_of_one_member() {
        let epoch = |generation, member| Epoch::new(generation, member);
        assert!(epoch(1, "b") < epoch(2, "a"));
        assert_eq!(epoch(2, "a").partial_cmp(&epoch(2, "a")), Some(Ordering::Equal));
        assert_eq!(epoch(2, "a").partial_cmp(&epoch(2, "b")), None);
    }
}
