//! Where a partition starts.

use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_core::{Class, Error, TopicId};

use crate::{StartPosition, admin::Position};

/// A partition does not start, or cannot go on, where it stands.
///
/// Nothing is skipped or read again by itself: somebody has to decide. Each
/// message says how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PositionError {
    /// The committed offset is not in the log.
    #[error(
        "the committed offset {committed} lies outside the log, {low}..{high}: records between are \
         gone, or the topic was made anew; stop the group's members and set its offset for this \
         partition to where to go on"
    )]
    #[non_exhaustive]
    OutsideLog {
        /// What the group has committed.
        committed: i64,
        /// Where the log begins.
        low: i64,
        /// Where the log ends.
        high: i64,
    },
    /// The position that was read up to is not in the log any more.
    #[error(
        "the log has lost the position {position}: records were removed before they were read, or \
         the topic was made anew; stop the group's members and set its offset for this partition to \
         where to go on"
    )]
    #[non_exhaustive]
    Lost {
        /// Where the next record was to be read.
        position: i64,
    },
    /// The topic is another one than before, of the same name.
    #[error(
        "the topic was deleted and made anew: its id is {now}, and was {was}; to begin the new one, \
         stop the group's members, delete the group's offsets for this topic, and give the target a \
         new generation"
    )]
    #[non_exhaustive]
    MadeAnew {
        /// The id that positions belong to.
        was: TopicId,
        /// The id that the topic has.
        now: TopicId,
    },
    /// Nothing is committed, and the configuration has no start for that.
    #[error(
        "the group has committed nothing for this partition, and `StartPosition::Error` is set: \
         commit an offset for it, or choose a start"
    )]
    NothingCommitted,
    /// The broker's answer names an error.
    #[error("the broker does not say where the partition starts: {0}")]
    Unanswered(Code),
}

/// What was found out about a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) committed: Option<Position>,
    pub(crate) low: i64,
    pub(crate) high: i64,
    /// The topic's id now, if the broker said.
    pub(crate) topic_id: Option<TopicId>,
}

/// Where a partition starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) offset: i64,
    /// It was chosen, not read from the group: it is committed, and that is
    /// acknowledged, before the first delivery.
    pub(crate) chosen: bool,
}

// What a commit carries beside the offset, so that a later look-up sees whether
// the topic is still the one that the offset belongs to.
const PREFIX: &str = "tidegate topic ";

/// The metadata of commits to a topic.
pub(crate) fn metadata(topic_id: &str) -> String {
    format!("{PREFIX}{topic_id}")
}

/// Decides where a partition starts. `before` is the id that the topic had when
/// this process worked on it.
pub(crate) fn resolve(
    known: &Known,
    before: Option<&TopicId>,
    policy: StartPosition,
) -> Result<Start, PositionError> {
    let Known { committed, low, high, topic_id } = known;
    if let Some(now) = topic_id {
        let beside = committed.as_ref().and_then(|it| it.metadata.strip_prefix(PREFIX));
        let was = beside.map(TopicId::new).or_else(|| before.cloned());
        if let Some(was) = was.filter(|was| was != now) {
            return Err(PositionError::MadeAnew { was, now: now.clone() });
        }
    }
    match (committed, policy) {
        (Some(Position { offset, .. }), _) if (*low..=*high).contains(offset) => {
            Ok(Start { offset: *offset, chosen: false })
        }
        (Some(Position { offset, .. }), _) => {
            Err(PositionError::OutsideLog { committed: *offset, low: *low, high: *high })
        }
        (None, StartPosition::Earliest) => Ok(Start { offset: *low, chosen: true }),
        (None, StartPosition::Latest) => Ok(Start { offset: *high, chosen: true }),
        (None, StartPosition::Error) => Err(PositionError::NothingCommitted),
    }
}

impl From<PositionError> for Error {
    fn from(error: PositionError) -> Self {
        Self::new(Class::Fatal, error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Position, PositionError, Start, StartPosition, TopicId, metadata, resolve};

    fn known(committed: Option<i64>, low: i64, high: i64) -> Known {
        let position = |offset| Position { offset, metadata: String::new() };
        Known { committed: committed.map(position), low, high, topic_id: Some(TopicId::new("new")) }
    }

    #[track_caller]
    fn check(known: &Known, policy: StartPosition, expected: Result<(i64, bool), &str>) {
        let start = resolve(known, None, policy);
        let start = start.map(|Start { offset, chosen }| (offset, chosen));
        let message = start.map_err(|error| error.to_string());
        match expected {
            Ok(start) => assert_eq!(message.unwrap(), start),
            Err(part) => assert!(message.as_ref().unwrap_err().contains(part), "{message:?}"),
        }
    }

    #[test]
    fn the_committed_offset_is_where_a_partition_starts() {
        check(&known(Some(7), 0, 10), StartPosition::Error, Ok((7, false)));
        check(&known(Some(0), 0, 10), StartPosition::Latest, Ok((0, false)));
        check(&known(Some(10), 0, 10), StartPosition::Earliest, Ok((10, false)));
    }

    #[test]
    fn without_one_the_policy_chooses() {
        check(&known(None, 3, 10), StartPosition::Earliest, Ok((3, true)));
        check(&known(None, 3, 10), StartPosition::Latest, Ok((10, true)));
        check(&known(None, 3, 10), StartPosition::Error, Err("committed nothing"));
    }

    #[test]
    fn a_committed_offset_outside_the_log_is_refused() {
        check(
            &known(Some(2), 3, 10),
            StartPosition::Earliest,
            Err("2 lies outside the log, 3..10"),
        );
        check(
            &known(Some(11), 3, 10),
            StartPosition::Latest,
            Err("11 lies outside the log, 3..10"),
        );
    }

    // The offset may lie inside the new log: only the id tells.
    #[test]
    fn a_topic_made_anew_is_refused() {
        let of = |metadata| Known {
            committed: Some(Position { offset: 5, metadata }),
            ..known(None, 0, 10)
        };
        let (old, new) = (TopicId::new("old"), TopicId::new("new"));
        let anew = PositionError::MadeAnew { was: old.clone(), now: new.clone() };
        assert_eq!(
            resolve(&of(metadata(old.as_str())), None, StartPosition::Earliest),
            Err(anew.clone())
        );
        let plain = of(String::new());
        assert_eq!(resolve(&plain, Some(&old), StartPosition::Earliest), Err(anew));
        let start = Ok(Start { offset: 5, chosen: false });
        assert_eq!(
            resolve(&of(metadata(new.as_str())), Some(&old), StartPosition::Earliest),
            start
        );
        assert_eq!(resolve(&plain, Some(&new), StartPosition::Earliest), start);
    }

    #[test]
    fn metadata_that_is_not_ours_says_nothing() {
        let theirs = Position { offset: 5, metadata: "checkpoint 9".to_owned() };
        let known = Known { committed: Some(theirs), ..known(None, 0, 10) };
        check(&known, StartPosition::Earliest, Ok((5, false)));
    }

    #[test]
    fn an_unknown_id_holds_nothing_up() {
        let known = Known { topic_id: None, ..known(Some(5), 0, 10) };
        let start = Ok(Start { offset: 5, chosen: false });
        assert_eq!(resolve(&known, Some(&TopicId::new("old")), StartPosition::Earliest), start);
    }
}
