//! How a lease goes on with a partition that the namespace knows, or does not.

use tidegate_core::{TopicId, TopicPartition};
use tidegate_sql::{
    DbErr, Txn,
    tables::markers::{self, Pruned, Source},
};

/// Makes a partition known, which a lease reads from `start` on, or notes that
/// it jumped.
///
/// One statement, if there is nothing to note; that is done with the first batch
/// of a lease only.
pub(crate) async fn enter(
    txn: &Txn,
    partition: &TopicPartition,
    topic_id: Option<&TopicId>,
    start: i64,
) -> Result<(), DbErr> {
    let Some(source) = markers::source(txn, partition).await? else {
        return markers::enter(txn, partition, topic_id, start).await;
    };
    if resumed(txn, source, topic_id, start).await?.is_none() {
        return Ok(());
    }
    // Looked at again under a lock, since another lane may be here as well.
    let Some(source) = markers::lock_source(txn, partition).await? else { return Ok(()) };
    match resumed(txn, source, topic_id, start).await? {
        Some(source) => markers::update_source(txn, &source).await,
        None => Ok(()),
    }
}

async fn resumed(
    txn: &Txn,
    source: Source,
    topic_id: Option<&TopicId>,
    start: i64,
) -> Result<Option<Source>, DbErr> {
    let last = match start > source.reached {
        true => markers::last_marked(txn, source.number, source.reached).await?,
        false => None,
    };
    Ok(resume(&source, topic_id, start, last))
}

/// What is to be noted about a lease that starts at `start`, if anything is.
///
/// Behind the last marker, and behind what a pruner saw acknowledged, the
/// namespace has read nothing: a start there is a jump. A gap in the log looks
/// the same where nothing in it left a marker, and is taken for one.
fn resume(
    source: &Source,
    topic_id: Option<&TopicId>,
    start: i64,
    last_marked: Option<i64>,
) -> Option<Source> {
    let known = last_marked.map_or(source.reached, |last| source.reached.max(last + 1));
    let adopts = source.topic_id.is_none() && topic_id.is_some();
    if start <= known && !adopts {
        return None;
    }
    let mut next = source.clone();
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
pub(crate) fn prunable(source: &Source, target: i64) -> (i64, i64) {
    let floor = source.pruned.floor;
    if floor >= source.resumed {
        return (floor, target);
    }
    if floor < source.gap {
        return (floor, target.min(source.gap));
    }
    (source.resumed, target)
}

/// Raises the floor from `from`, which is where [`prunable`] offsets begin.
pub(crate) fn raise(source: &mut Source, from: i64, to: i64) {
    if from > source.pruned.floor {
        source.pruned.low = from;
    }
    source.pruned.floor = to;
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use tidegate_core::TopicId;
    use tidegate_sql::tables::markers::{Pruned, Source};

    use super::{prunable, raise, resume};

    fn source() -> Source {
        let pruned = Pruned { low: 0, floor: 50 };
        Source { number: 1, topic_id: None, pruned, gap: 0, resumed: 0, reached: 100 }
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
            let next = resume(&source(), None, start, last_marked);
            let expected =
                gap.map(|gap| Source { gap, resumed: start, reached: start, ..source() });
            assert_eq!(next, expected, "{start} {last_marked:?}");
        }
    }

    #[test]
    fn an_unknown_topic_id_is_adopted_and_a_known_one_kept() {
        let (a, b) = (TopicId::new("a"), TopicId::new("b"));
        let adopted = resume(&source(), Some(&a), 100, None).unwrap();
        assert_eq!(adopted, Source { topic_id: Some(a.clone()), ..source() });
        assert_eq!(resume(&adopted, Some(&b), 100, None), None);
        let jumped = resume(&adopted, Some(&b), 300, None).unwrap();
        assert_eq!((jumped.topic_id, jumped.resumed), (Some(a), 300));
    }

    #[test]
    fn a_floor_beyond_a_jump_begins_a_new_range() {
        let mut source = resume(&source(), None, 1_000, Some(119)).unwrap();
        assert_eq!(prunable(&source, 80), (50, 80));
        assert_eq!(prunable(&source, 2_000), (50, 120));
        raise(&mut source, 50, 120);
        assert_eq!(source.pruned, Pruned { low: 0, floor: 120 });
        assert_eq!(prunable(&source, 2_000), (1_000, 2_000));
        raise(&mut source, 1_000, 1_200);
        assert_eq!(source.pruned, Pruned { low: 1_000, floor: 1_200 });
        assert_eq!(prunable(&source, 2_000), (1_200, 2_000));
        raise(&mut source, 1_200, 1_300);
        assert_eq!(source.pruned, Pruned { low: 1_000, floor: 1_300 });
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
            let mut source: Option<Source> = None;
            for step in steps {
                match (step, &mut source) {
                    (Step::Read { start, count }, known) => {
                        let source = known.get_or_insert_with(|| Source {
                            pruned: Pruned { low: start, floor: start },
                            gap: start,
                            resumed: start,
                            reached: start,
                            ..source_at_zero()
                        });
                        let last = marked.iter().copied().filter(|it| *it >= source.reached).max();
                        if let Some(next) = resume(source, None, start, last) {
                            *source = next;
                        }
                        for offset in start..start + count {
                            delivered[usize::try_from(offset).unwrap()] = true;
                            marked.push(offset);
                        }
                    }
                    (Step::Prune { target }, Some(source)) => {
                        let acknowledged = marked.iter().copied().max().map_or(0, |it| it + 1);
                        let (from, to) = prunable(source, target.min(acknowledged));
                        if to > from {
                            marked.retain(|it| !(from..to).contains(it));
                            raise(source, from, to);
                        }
                    }
                    (Step::Prune { .. }, None) => {}
                }
                if let Some(Source { pruned, .. }) = &source {
                    for offset in pruned.low..pruned.floor {
                        prop_assert!(
                            delivered[usize::try_from(offset).unwrap()],
                            "{} of {:?}", offset, source
                        );
                    }
                }
            }
        }
    }

    fn source_at_zero() -> Source {
        Source { pruned: Pruned::default(), gap: 0, resumed: 0, reached: 0, ..source() }
    }
}
