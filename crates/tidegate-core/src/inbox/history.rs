use crate::TopicId;

/// The offsets whose markers are pruned, from `low` up to `floor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The first one.
    pub low: i64,
    /// The first one behind them.
    pub floor: i64,
}

/// How a namespace has read a partition, and what it has forgotten of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The id of its topic, if it is known.
    pub topic_id: Option<TopicId>,
    /// The offsets whose markers are pruned.
    pub pruned: Pruned,
    /// Where it was left before the last jump.
    pub gap: i64,
    /// Where it was read on from after that. Nothing is known about the offsets
    /// between the two.
    pub resumed: i64,
    /// How far it was read on from there, at least.
    pub reached: i64,
}

// ===== impl Pruned =====

impl Pruned {
    /// Whether an offset is one of them.
    #[must_use]
    pub fn contains(&self, offset: i64) -> bool {
        (self.low..self.floor).contains(&offset)
    }
}

// ===== impl History =====

impl History {
    /// That of a partition of which nothing was read, and which is read from
    /// `start` on.
    #[must_use]
    pub fn starting_at(start: i64, topic_id: Option<TopicId>) -> Self {
        let pruned = Pruned { low: start, floor: start };
        Self { topic_id, pruned, gap: start, resumed: start, reached: start }
    }

    /// What is to be noted about a lease that starts at `start`, if anything is.
    /// `last_marked` is the highest offset with a marker from `reached` on.
    ///
    /// Behind the last marker, and behind what a pruner saw acknowledged, the
    /// namespace has read nothing: a start there is a jump. A gap in the log looks
    /// the same where nothing in it left a marker, and is taken for one.
    #[must_use]
    pub fn resume(
        &self,
        topic_id: Option<&TopicId>,
        start: i64,
        last_marked: Option<i64>,
    ) -> Option<Self> {
        let known = last_marked.map_or(self.reached, |last| self.reached.max(last + 1));
        let adopts = self.topic_id.is_none() && topic_id.is_some();
        if start <= known && !adopts {
            return None;
        }
        let mut next = self.clone();
        next.topic_id = next.topic_id.or_else(|| topic_id.cloned());
        if start > known {
            if next.pruned.floor < next.resumed {
                // Of two jumps only the last is kept, and with it one range.
                next.pruned = Pruned { low: next.resumed, floor: next.resumed };
            }
            (next.gap, next.resumed, next.reached) = (known, start, start);
        }
        Some(next)
    }

    /// The offsets that a pruner may look at next, up to `target`: the floor is to
    /// rise from the first to the second at most.
    ///
    /// They do not reach across a jump: what lies in between was not delivered, so
    /// nothing may be said about it. Behind it a new range begins.
    #[must_use]
    pub fn prunable(&self, target: i64) -> (i64, i64) {
        let floor = self.pruned.floor;
        if floor >= self.resumed {
            return (floor, target);
        }
        if floor < self.gap {
            return (floor, target.min(self.gap));
        }
        (self.resumed, target)
    }

    /// Raises the floor from `from`, which is where [`prunable`](Self::prunable)
    /// offsets begin.
    pub fn raise(&mut self, from: i64, to: i64) {
        if from > self.pruned.floor {
            self.pruned.low = from;
        }
        self.pruned.floor = to;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{History, Pruned};
    use crate::TopicId;

    fn history() -> History {
        let pruned = Pruned { low: 0, floor: 50 };
        History { topic_id: None, pruned, gap: 0, resumed: 0, reached: 100 }
    }

    #[test]
    fn only_a_start_behind_all_that_is_known_is_a_jump() {
        for (start, last_marked, gap) in [
            (100, None, None),
            (20, None, None),
            (140, Some(139), None),
            (140, Some(200), None),
            (141, Some(139), Some(140)),
            (101, None, Some(100)),
        ] {
            let next = history().resume(None, start, last_marked);
            let expected =
                gap.map(|gap| History { gap, resumed: start, reached: start, ..history() });
            assert_eq!(next, expected, "{start} {last_marked:?}");
        }
    }

    #[test]
    fn an_unknown_topic_id_is_adopted_and_a_known_one_kept() {
        let (a, b) = (TopicId::new("a"), TopicId::new("b"));
        let adopted = history().resume(Some(&a), 100, None).unwrap();
        assert_eq!(adopted, History { topic_id: Some(a.clone()), ..history() });
        assert_eq!(adopted.resume(Some(&b), 100, None), None);
        let jumped = adopted.resume(Some(&b), 300, None).unwrap();
        assert_eq!((jumped.topic_id, jumped.resumed), (Some(a), 300));
    }

    #[test]
    fn a_floor_beyond_a_jump_begins_a_new_range() {
        let mut history = history().resume(None, 1_000, Some(119)).unwrap();
        assert_eq!(history.prunable(80), (50, 80));
        assert_eq!(history.prunable(2_000), (50, 120));
        history.raise(50, 120);
        assert_eq!(history.pruned, Pruned { low: 0, floor: 120 });
        assert_eq!(history.prunable(2_000), (1_000, 2_000));
        history.raise(1_000, 1_200);
        assert_eq!(history.pruned, Pruned { low: 1_000, floor: 1_200 });
        assert_eq!(history.prunable(2_000), (1_200, 2_000));
        history.raise(1_200, 1_300);
        assert_eq!(history.pruned, Pruned { low: 1_000, floor: 1_300 });
    }

    /// What happens to a partition.
    #[derive(Clone, Debug)]
    enum Step {
        /// A lease starts there, and reads so many records.
        Read { start: i64, count: i64 },
        /// A pruner wants the floor there.
        Prune { target: i64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let read = (0..200_i64, 1..30_i64).prop_map(|(start, count)| Step::Read { start, count });
        prop_oneof![read, (0..200_i64).prop_map(|target| Step::Prune { target })]
    }

    proptest! {
        // Whatever is said to be pruned was delivered.
        #[test]
        fn nothing_is_too_old_that_was_never_delivered(steps in vec(step(), 1..30)) {
            let mut delivered = [false; 300];
            let mut marked: Vec<i64> = Vec::new();
            let mut history: Option<History> = None;
            for step in steps {
                match (step, &mut history) {
                    (Step::Read { start, count }, known) => {
                        let history =
                            known.get_or_insert_with(|| History::starting_at(start, None));
                        let last = marked.iter().copied().filter(|it| *it >= history.reached).max();
                        if let Some(next) = history.resume(None, start, last) {
                            *history = next;
                        }
                        for offset in start..start + count {
                            delivered[usize::try_from(offset).unwrap()] = true;
                            marked.push(offset);
                        }
                    }
                    (Step::Prune { target }, Some(history)) => {
                        let acknowledged = marked.iter().copied().max().map_or(0, |it| it + 1);
                        let (from, to) = history.prunable(target.min(acknowledged));
                        if to > from {
                            marked.retain(|it| !(from..to).contains(it));
                            history.raise(from, to);
                        }
                    }
                    (Step::Prune { .. }, None) => {}
                }
                if let Some(History { pruned, .. }) = &history {
                    for offset in pruned.low..pruned.floor {
                        prop_assert!(
                            delivered[usize::try_from(offset).unwrap()],
                            "{} of {:?}", offset, history
                        );
                    }
                }
            }
        }
    }
}
