//! Which messages of a batch are new. No I/O.

use std::collections::HashMap;

use tidegate_core::{Batch, Delivery, Error, Fingerprint, Identify, Outcome};
use tidegate_sql::tables::{
    Mark,
    markers::{Marker, Pruned},
};

use crate::Conflict;

/// The messages of a batch, one for each delivery.
#[derive(Debug)]
pub(crate) struct Messages {
    each: Vec<Marker>,
}

/// What is decided about each delivery of a batch; what is new is not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) each: Vec<Option<Outcome>>,
}

/// A delivery, by its index, has another payload than its message had before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConflictAt {
    pub(crate) index: usize,
    pub(crate) conflict: Conflict,
}

// ===== impl Messages =====

impl Messages {
    /// Finds the ids of a batch's messages.
    pub(crate) fn of<T, I: Identify<T>>(
        identify: &I,
        batch: &Batch<Delivery<T>>,
    ) -> Result<Self, Error> {
        let marker = |delivery: &std::sync::Arc<Delivery<T>>| {
            Ok(Marker {
                mark: Mark {
                    id: identify.identify(delivery)?,
                    fingerprint: Fingerprint::of_record(&delivery.record),
                },
                offset: delivery.record.offset,
            })
        };
        Ok(Self { each: batch.iter().map(marker).collect::<Result<_, Error>>()? })
    }

    /// The message of the delivery at `index`.
    pub(crate) fn mark(&self, index: usize) -> Mark {
        self.each[index].mark
    }

    /// The lowest offset of the batch.
    pub(crate) fn first_offset(&self) -> i64 {
        let offsets = self.each.iter().map(|marker| marker.offset);
        offsets.min().expect("a batch is never empty")
    }

    /// What is to be claimed, sorted by id, since all who claim lock in this
    /// order. A message that the batch holds twice is in it twice: the first one
    /// may lie among the pruned offsets.
    pub(crate) fn markers(&self) -> Vec<&Marker> {
        let mut markers: Vec<_> = self.each.iter().collect();
        markers.sort_by_key(|marker| marker.mark.id);
        markers
    }

    /// Decides about the deliveries, knowing which offsets are pruned and which
    /// messages were claimed before.
    ///
    /// A batch may hold a message twice: the first is the one to be applied.
    pub(crate) fn decide(&self, pruned: Pruned, before: Vec<Mark>) -> Result<Decided, ConflictAt> {
        let before = before.into_iter().map(|mark| (mark.id, mark.fingerprint));
        let mut seen: HashMap<_, _> = before.collect();
        let mut each = Vec::with_capacity(self.each.len());
        for (index, marker) in self.each.iter().enumerate() {
            if pruned.contains(marker.offset) {
                each.push(Some(Outcome::TooOld));
                continue;
            }
            let Mark { id, fingerprint } = marker.mark;
            match seen.insert(id, fingerprint) {
                None => each.push(None),
                Some(before) if before == fingerprint => {
                    each.push(Some(Outcome::Duplicate));
                }
                Some(_) => {
                    let conflict = Conflict { id };
                    return Err(ConflictAt { index, conflict });
                }
            }
        }
        Ok(Decided { each })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};
    use tidegate_core::{Fingerprint, MessageId, Outcome};
    use tidegate_sql::tables::{
        Mark,
        markers::{Marker, Pruned},
    };

    use super::{Conflict, ConflictAt, Messages};

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
        use Outcome::{Duplicate, TooOld};
        assert_eq!(decided.each, [Some(TooOld), None, None, Some(Duplicate)]);
        assert_eq!(batch.markers().len(), 4);
    }

    #[test]
    fn another_payload_is_a_conflict_within_a_batch_and_with_what_was_before() {
        let conflict = |id: u128| Conflict { id: MessageId::from(id) };
        let batch = messages(&[(1, 0, 0), (2, 0, 1), (1, 9, 2)]);
        let met = batch.decide(Pruned::default(), Vec::new()).unwrap_err();
        assert_eq!(met, ConflictAt { index: 2, conflict: conflict(1) });
        let before = vec![mark(2, 7)];
        let met = batch.decide(Pruned::default(), before).unwrap_err();
        assert_eq!(met, ConflictAt { index: 1, conflict: conflict(2) });
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
                            return Ok(Some(Outcome::TooOld));
                        }
                        match next.insert(*id, *payload) {
                            None => Ok(None),
                            Some(first) if first == *payload => Ok(Some(Outcome::Duplicate)),
                            Some(_) => Err(index),
                        }
                    })
                    .collect();
                let decided = messages(&each).decide(pruned, before);
                match (decided, expected) {
                    (Ok(decided), Ok(expected)) => {
                        prop_assert_eq!(decided.each, expected);
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
