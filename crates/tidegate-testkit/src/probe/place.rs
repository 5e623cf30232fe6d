use std::{fmt, ops::Range, str::FromStr, sync::Arc};

use tidegate_core::{Batch, Delivery, TopicPartition};

/// Where a record lies: what a probe knows about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset within it.
    pub offset: i64,
}

/// Which records a probe is armed for.
///
/// As a text it is `topic:partition@offset`, where each part may be `*`, and
/// the offset a range: `transfers:0@7`, `transfers:*@*`, `*:3@100..`,
/// `*:3@100..120`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    topic: Option<Arc<str>>,
    partition: Option<i32>,
    // Up to the largest offset, which no record has, it has no end.
    offsets: Option<Range<i64>>,
}

/// A text does not say which records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `topic:partition@offset`")]
pub struct NotAPlace(pub(super) String);

/// A request that is about records.
#[diagnostic::on_unimplemented(
    message = "a probe does not know which records a `{Self}` is about",
    note = "use `ProbeLayer::located_by` with a function that says it"
)]
pub trait Located {
    /// The records that it is about.
    fn places(&self) -> Vec<Place>;
}

// ===== impl Place =====

impl Place {
    /// Names a place.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32, offset: i64) -> Self {
        Self { partition: TopicPartition::new(topic, partition), offset }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition: TopicPartition { topic, partition }, offset } = self;
        write!(f, "{topic}:{partition}@{offset}")
    }
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let parse = || {
            let (topic, partition, offset) = split(text)?;
            Some(Self::new(topic, partition.parse().ok()?, offset.parse().ok()?))
        };
        parse().ok_or_else(|| NotAPlace(text.to_owned()))
    }
}

/// Takes `topic:partition@offset` apart. No topic's name has such signs.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (partition, offset) = text.split_once('@')?;
    let (topic, partition) = partition.split_once(':')?;
    (!topic.is_empty()).then_some((topic, partition, offset))
}

// ===== impl When =====

impl When {
    /// Any record.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// This record only.
    #[must_use]
    pub fn at(place: &Place) -> Self {
        let Place { partition: TopicPartition { topic, partition }, offset } = place;
        Self::any().topic(Arc::clone(topic)).partition(*partition).offset(*offset)
    }

    /// Records of this topic only.
    #[must_use]
    pub fn topic(self, topic: impl Into<Arc<str>>) -> Self {
        Self { topic: Some(topic.into()), ..self }
    }

    /// Records of this partition only.
    #[must_use]
    pub fn partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// Records at this offset only.
    #[must_use]
    pub fn offset(self, offset: i64) -> Self {
        self.offsets(offset..offset.saturating_add(1))
    }

    /// Records from this offset on only.
    #[must_use]
    pub fn from(self, offset: i64) -> Self {
        self.offsets(offset..i64::MAX)
    }

    /// Records at these offsets only.
    #[must_use]
    pub fn offsets(self, offsets: Range<i64>) -> Self {
        Self { offsets: Some(offsets), ..self }
    }

    /// Whether it is armed for this record.
    #[must_use]
    pub fn is(&self, place: &Place) -> bool {
        let Place { partition: TopicPartition { topic, partition }, offset } = place;
        self.topic.as_ref().is_none_or(|it| it == topic)
            && self.partition.is_none_or(|it| it == *partition)
            && self.offsets.as_ref().is_none_or(|it| it.contains(offset))
    }

    pub(super) fn is_any_of(&self, places: &[Place]) -> bool {
        places.iter().any(|place| self.is(place))
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.topic.as_deref().unwrap_or("*"))?;
        match self.partition {
            Some(partition) => write!(f, "{partition}@")?,
            None => f.write_str("*@")?,
        }
        match &self.offsets {
            None => f.write_str("*"),
            Some(Range { start, end: i64::MAX }) => write!(f, "{start}.."),
            Some(Range { start, end }) if *end == start + 1 => write!(f, "{start}"),
            Some(Range { start, end }) => write!(f, "{start}..{end}"),
        }
    }
}

impl FromStr for When {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let parse = || {
            let (topic, partition, offset) = split(text)?;
            let mut when = Self::any();
            if topic != "*" {
                when = when.topic(topic);
            }
            if partition != "*" {
                when = when.partition(partition.parse().ok()?);
            }
            Some(match (offset, offset.split_once("..")) {
                ("*", _) => when,
                (_, None) => when.offset(offset.parse().ok()?),
                (_, Some((start, ""))) => when.from(start.parse().ok()?),
                (_, Some((start, end))) => when.offsets(start.parse().ok()?..end.parse().ok()?),
            })
        };
        parse().ok_or_else(|| NotAPlace(text.to_owned()))
    }
}

// ===== impl Located =====

impl Located for Place {
    fn places(&self) -> Vec<Self> {
        vec![self.clone()]
    }
}

impl<T> Located for Delivery<T> {
    fn places(&self) -> Vec<Place> {
        vec![Place { partition: self.record.partition.clone(), offset: self.record.offset }]
    }
}

impl<D: Located> Located for Batch<D> {
    fn places(&self) -> Vec<Place> {
        self.iter().flat_map(|delivery| delivery.places()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, When};

    #[track_caller]
    fn check(text: &str, is: &[&str], is_not: &[&str]) {
        let when: When = text.parse().unwrap();
        assert_eq!(when.to_string(), text);
        for place in is {
            assert!(when.is(&place.parse().unwrap()), "{place}");
        }
        for place in is_not {
            assert!(!when.is(&place.parse().unwrap()), "{place}");
        }
    }

    #[test]
    fn a_probe_is_armed_for_a_topic_a_partition_and_offsets() {
        check("*:*@*", &["a:0@0", "b:7@9"], &[]);
        check("a-1.b:*@*", &["a-1.b:3@0"], &["a:1@0"]);
        check("*:3@*", &["a:3@0", "b:3@9"], &["a:2@0"]);
        check("a:3@7", &["a:3@7"], &["a:3@6", "a:3@8", "b:3@7"]);
        check("*:*@7..", &["a:3@7", "a:3@900"], &["a:3@6"]);
        check("*:*@7..9", &["a:3@7", "a:3@8"], &["a:3@6", "a:3@9"]);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["", "a", "a:0", "a:x@1", ":0@1", "a:0@x", "a:0@1..x", "a:0@"] {
            assert!(text.parse::<When>().is_err(), "{text}");
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
