use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::TopicPartition;

/// Where a group's offsets are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetTo {
    /// The beginning of each log.
    Earliest,
    /// The end of each log.
    Latest,
    /// This offset.
    Offset(i64),
    /// The first record at this time or later, in milliseconds since the Unix
    /// epoch; the end of the log where there is none.
    Time(i64),
    /// So many records farther, or back.
    Shift(i64),
}

/// What is to be done to a group's offsets, and what they are now.
///
/// It can be saved, as JSON for example, and undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// The group.
    pub group: String,
    /// A move for each partition.
    pub moves: Vec<Move>,
}

/// What is to be done to the offset of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// What is committed now; `None` is nothing.
    pub from: Option<i64>,
    /// What is to be committed; `None` is nothing.
    pub to: Option<i64>,
    /// The id of the topic, where it is known, which is committed beside the
    /// offset: a source refuses it once the topic was made anew.
    pub topic_id: Option<String>,
}

/// What is known of a partition's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    pub(super) low: i64,
    pub(super) high: i64,
    /// The first offset at the time that is asked for; negative if there is none.
    pub(super) at: i64,
}

// ===== impl Plan =====

impl Plan {
    /// The plan that brings back what is committed now.
    #[must_use]
    pub fn undo(&self) -> Self {
        let undo = |it: &Move| Move { from: it.to, to: it.from, ..it.clone() };
        Self { group: self.group.clone(), moves: self.moves.iter().map(undo).collect() }
    }

    /// The moves by partition.
    #[must_use]
    pub fn by_partition(&self) -> BTreeMap<TopicPartition, &Move> {
        self.moves.iter().map(|it| (it.name(), it)).collect()
    }
}

impl Move {
    pub(super) fn name(&self) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), self.partition)
    }
}

impl ResetTo {
    /// The offset that it is in a log, if it is one there.
    pub(super) fn within(self, log: Log, committed: Option<i64>) -> Option<i64> {
        let Log { low, high, at } = log;
        let offset = match self {
            Self::Earliest => low,
            Self::Latest => high,
            Self::Offset(offset) => offset,
            Self::Time(_) if at < 0 => high,
            Self::Time(_) => at,
            Self::Shift(by) => (committed? + by).clamp(low, high),
        };
        (low..=high).contains(&offset).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, Move, Plan, ResetTo};

    const LOG: Log = Log { low: 10, high: 20, at: 15 };

    #[track_caller]
    fn check(to: ResetTo, committed: Option<i64>, expected: Option<i64>) {
        assert_eq!(to.within(LOG, committed), expected);
    }

    #[test]
    fn an_offset_is_one_of_the_log() {
        check(ResetTo::Earliest, None, Some(10));
        check(ResetTo::Latest, None, Some(20));
        check(ResetTo::Offset(12), None, Some(12));
        check(ResetTo::Offset(9), None, None);
        check(ResetTo::Offset(21), None, None);
        check(ResetTo::Time(0), None, Some(15));
        assert_eq!(ResetTo::Time(0).within(Log { at: -1, ..LOG }, None), Some(20));
    }

    #[test]
    fn a_shift_stays_in_the_log_and_needs_a_committed_offset() {
        check(ResetTo::Shift(-3), Some(16), Some(13));
        check(ResetTo::Shift(-30), Some(16), Some(10));
        check(ResetTo::Shift(30), Some(16), Some(20));
        check(ResetTo::Shift(1), None, None);
    }

    #[test]
    fn a_plan_is_saved_and_undone() {
        let it = Move {
            topic: "t".into(),
            partition: 1,
            from: None,
            to: Some(7),
            topic_id: Some("id".into()),
        };
        let plan = Plan { group: "g".into(), moves: vec![it] };
        let saved = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&saved).unwrap(), plan);
        let undo = plan.undo();
        assert_eq!((undo.moves[0].from, undo.moves[0].to), (Some(7), None));
        assert_eq!(undo.undo(), plan);
    }
}
