use std::{collections::HashMap, sync::Arc};

use super::Pruned;
use crate::{Batch, Delivery, Error, Fingerprint, Identify, Mark, MessageId, Outcome, Outcomes};

/// A message that is claimed, and where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The message.
    pub mark: Mark,
    /// Its offset.
    pub offset: i64,
}

/// The messages of a batch, one for each delivery.
#[derive(Clone, Debug)]
pub struct Messages {
    each: Vec<Marker>,
}

/// What is decided about each delivery of a batch; what is new is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    each: Vec<Option<Outcome>>,
}

/// The deliveries of a batch that are new.
#[derive(Debug)]
pub struct New<T> {
    /// The deliveries.
    pub batch: Batch<Delivery<T>>,
    /// Their messages, in the same order.
    pub marks: Arc<[Mark]>,
}

/// A delivery, by its index, has another payload than its message had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictAt {
    /// The delivery.
    pub index: usize,
    /// Its message.
    pub id: MessageId,
}

// ===== impl Messages =====

impl Messages {
    /// Finds the ids of a batch's messages.
    ///
    /// # Errors
    ///
    /// When a delivery has none.
    pub fn of<T, I: Identify<T>>(identify: &I, batch: &Batch<Delivery<T>>) -> Result<Self, Error> {
        let mut each = Vec::with_capacity(batch.len());
        for delivery in batch.iter() {
            let fingerprint = Fingerprint::of_record(&delivery.record);
            let mark = Mark { id: identify.identify(delivery)?, fingerprint };
            each.push(Marker { mark, offset: delivery.record.offset });
        }
        Ok(Self { each })
    }

    /// The lowest offset of the batch.
    ///
    /// # Panics
    ///
    /// Never: a batch is not empty.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        let offsets = self.each.iter().map(|marker| marker.offset);
        offsets.min().expect("a batch is never empty")
    }

    /// What is to be claimed, sorted by id, since all who claim lock in this
    /// order. A message that the batch holds twice is in it twice: the first one
    /// may lie among the pruned offsets.
    #[must_use]
    pub fn markers(&self) -> Vec<&Marker> {
        let mut markers: Vec<_> = self.each.iter().collect();
        markers.sort_by_key(|marker| marker.mark.id);
        markers
    }

    /// Decides about the deliveries, knowing which offsets are pruned and which
    /// messages were claimed before.
    ///
    /// A batch may hold a message twice: the first is the one to be applied.
    ///
    /// # Errors
    ///
    /// At the first message that had another payload before.
    pub fn decide(&self, pruned: Pruned, before: Vec<Mark>) -> Result<Decided, ConflictAt> {
        let before = before.into_iter().map(|mark| (mark.id, mark.fingerprint));
        let mut seen: HashMap<_, _> = HashMap::with_capacity(before.len() + self.each.len());
        seen.extend(before);
        let mut each = Vec::with_capacity(self.each.len());
        for (index, marker) in self.each.iter().enumerate() {
            if pruned.contains(marker.offset) {
                each.push(Some(Outcome::TooOld));
                continue;
            }
            let Mark { id, fingerprint } = marker.mark;
            match seen.insert(id, fingerprint) {
                None => each.push(None),
                Some(before) if before == fingerprint => each.push(Some(Outcome::Duplicate)),
                Some(_) => return Err(ConflictAt { index, id }),
            }
        }
        Ok(Decided { each })
    }

    /// The deliveries of the batch that are new, if any is.
    #[must_use]
    pub fn new_of<T>(&self, batch: &Batch<Delivery<T>>, decided: &Decided) -> Option<New<T>> {
        let new = decided.each.iter().enumerate().filter(|(_, it)| it.is_none());
        let mut deliveries = Vec::with_capacity(self.each.len());
        let mut marks = Vec::with_capacity(self.each.len());
        for (index, _) in new {
            deliveries.push(Arc::clone(&batch[index]));
            marks.push(self.each[index].mark);
        }
        Batch::new(deliveries).map(|batch| New { batch, marks: marks.into() })
    }
}

// ===== impl Decided =====

impl Decided {
    /// What is decided about each delivery.
    #[must_use]
    pub fn each(&self) -> &[Option<Outcome>] {
        &self.each
    }

    /// Whether each delivery is new.
    #[must_use]
    pub fn is_all_new(&self) -> bool {
        self.each.iter().all(Option::is_none)
    }

    /// Puts the outcomes of what was new in its places.
    ///
    /// # Panics
    ///
    /// When they are fewer than what was new.
    pub fn with_applied(self, applied: Option<Outcomes>) -> Outcomes {
        let mut applied = applied.into_iter().flatten();
        let outcome = |decided: Option<Outcome>| decided.or_else(|| applied.next());
        let outcomes = self.each.into_iter().map(outcome).collect::<Option<Outcomes>>();
        outcomes.expect("the inner service answers for each delivery")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::{ConflictAt, Decided, Marker, Messages, Pruned};
    use crate::{
        Batch, Delivery, Epoch, Fingerprint, Lease, Mark, MessageId,
        Outcome::{Applied, Duplicate, Stale, TooOld},
        Outcomes, Record, TopicPartition,
    };

    fn mark(id: u8, payload: u8) -> Mark {
        let id = MessageId::from(u128::from(id));
        Mark { id, fingerprint: Fingerprint::of(&[payload]) }
    }

    fn messages(each: &[(u8, u8, i64)]) -> Messages {
        let marker =
            |&(id, payload, offset): &(u8, u8, i64)| Marker { mark: mark(id, payload), offset };
        Messages { each: each.iter().map(marker).collect() }
    }

    #[test]
    fn the_first_of_two_is_new_and_a_pruned_one_does_not_count() {
        let batch = messages(&[(1, 0, 3), (2, 0, 10), (1, 0, 11), (2, 0, 12)]);
        let pruned = Pruned { low: 0, floor: 10 };
        let decided = batch.decide(pruned, Vec::new()).unwrap();
        assert_eq!(decided.each(), [Some(TooOld), None, None, Some(Duplicate)]);
        assert_eq!(batch.markers().len(), 4);
    }

    #[test]
    fn another_payload_is_a_conflict_within_a_batch_and_with_what_was_before() {
        let conflict = |index, id: u128| ConflictAt { index, id: id.into() };
        let batch = messages(&[(1, 0, 0), (2, 0, 1), (1, 9, 2)]);
        let met = batch.decide(Pruned::default(), Vec::new()).unwrap_err();
        assert_eq!(met, conflict(2, 1));
        let before = vec![mark(2, 7)];
        let met = batch.decide(Pruned::default(), before).unwrap_err();
        assert_eq!(met, conflict(1, 2));
    }

    #[test]
    fn what_is_new_goes_on_and_its_outcomes_come_back_to_their_places() {
        let partition = TopicPartition::new("t", 0);
        let (_owner, lease) = Lease::grant(partition.clone(), Epoch::new(1, "m"));
        let delivery =
            |at: i64| Delivery::new(lease.clone(), Record::new(partition.clone(), at, ""));
        let batch = Batch::new((0..4).map(|at| delivery(at).into()).collect()).unwrap();
        let all = messages(&[(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3)]);
        for (decided, new, applied, outcomes) in [
            (
                [Some(TooOld), None, Some(Duplicate), None],
                vec![1, 3],
                Some([Applied, Stale].into_iter().collect()),
                [TooOld, Applied, Duplicate, Stale],
            ),
            ([None; 4], vec![0, 1, 2, 3], Some(Outcomes::all(Applied, 4)), [Applied; 4]),
            ([Some(Duplicate); 4], vec![], None, [Duplicate; 4]),
        ] {
            let decided = Decided { each: decided.to_vec() };
            let goes_on = all.new_of(&batch, &decided);
            let of_new = goes_on.iter().flat_map(|new| new.batch.iter().zip(&*new.marks));
            let expected = new.iter().map(|at| (i64::from(*at), mark(*at, 0)));
            assert!(of_new.map(|(it, mark)| (it.record.offset, *mark)).eq(expected));
            assert_eq!(decided.with_applied(applied), outcomes.into_iter().collect());
        }
    }

    proptest! {
        // Batches of a random stream against one map from id to payload, which is
        // what an inbox is.
        #[test]
        fn decisions_are_those_of_a_map(
            stream in vec((0..6_u8, prop::bool::weighted(0.1), 0..30_i64), 1..40),
            sizes in vec(1..5_usize, 40),
            (low, length) in (0..20_i64, 0..10_i64),
        ) {
            let pruned = Pruned { low, floor: low + length };
            let mut inbox: BTreeMap<u8, u8> = BTreeMap::new();
            let mut rest = &stream[..];
            for size in sizes {
                let (batch, behind) = rest.split_at(size.min(rest.len()));
                rest = behind;
                let each: Vec<_> =
                    batch.iter().map(|&(id, other, at)| (id, u8::from(other), at)).collect();
                let before = inbox
                    .iter()
                    .filter(|(id, _)| each.iter().any(|(it, _, at)| it == *id && !pruned.contains(*at)))
                    .map(|(id, payload)| mark(*id, *payload))
                    .collect();
                let mut next = inbox.clone();
                let expected: Result<Vec<_>, usize> = each
                    .iter()
                    .enumerate()
                    .map(|(index, (id, payload, at))| {
                        if pruned.contains(*at) {
                            return Ok(Some(TooOld));
                        }
                        match next.insert(*id, *payload) {
                            None => Ok(None),
                            Some(first) if first == *payload => Ok(Some(Duplicate)),
                            Some(_) => Err(index),
                        }
                    })
                    .collect();
                let decided = messages(&each).decide(pruned, before);
                match (decided, expected) {
                    (Ok(decided), Ok(expected)) => {
                        prop_assert_eq!(decided.each(), expected);
                        inbox = next;
                    }
                    // Rolled back: the inbox is as it was.
                    (Err(met), Err(index)) => prop_assert_eq!(met.index, index),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
