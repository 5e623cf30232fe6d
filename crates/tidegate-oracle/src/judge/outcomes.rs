//! Each record has a durable outcome, and the one that is due.

use std::collections::HashSet;

use super::Case;
use crate::{Due, Input, Message, Order, Partition, Plan, ViolationKind};

impl<'a> Case<'a> {
    pub(super) fn outcomes(&mut self) {
        // What lies above the committed offset may be there, and need not.
        let end = |partition: &Partition| {
            if self.rules.consumed { i64::MAX } else { self.committed(partition) }
        };
        let plan = Plan::up_to(&self.evidence.log, self.rules, end);
        let mut passed = HashSet::<&Partition>::new();
        for (index, input) in self.inputs.iter().enumerate() {
            if self.is_resolved(index, input) {
                continue;
            }
            if let Some((kind, what)) = plan.due(index).and_then(lack) {
                self.violated(kind, Some(&input.record.place), describe(input, what));
            }
            let place = &input.record.place;
            let committed = self.committed(&place.partition);
            if place.offset < committed && passed.insert(&place.partition) {
                let detail = describe(input, &format!("{committed} is committed, no outcome"));
                self.violated(ViolationKind::CommittedPastUnfinished, Some(place), detail);
            }
        }
    }

    fn committed(&self, partition: &Partition) -> i64 {
        self.offsets.get(partition).and_then(|offsets| offsets.highest).unwrap_or_default()
    }

    /// Whether what became of a record is in the database.
    fn is_resolved(&self, index: usize, input: &'a Input) -> bool {
        if self.buried.contains(&input.record.place) {
            return true;
        }
        let Some(message) = input.message() else { return false };
        let mut effects = self.by_message.get(&message.id).into_iter().flatten();
        let last = self.revisions.get(message.entity.as_str());
        self.is_parked(index)
            || effects.any(|effect| self.is_of(effect, index))
            || last.is_some_and(|last| *last >= message.revision) && self.is_stale(index, message)
    }

    /// Whether a record was over when it came, or repeats one that was.
    fn is_stale(&self, index: usize, message: &Message) -> bool {
        let copies = self.records[&message.id].iter();
        copies.take_while(|copy| **copy <= index).any(|&copy| {
            self.plan.due(copy) == Some(Due::Stale)
                && self.inputs[copy].repeats(&self.inputs[index])
        })
    }

    /// What is a dead letter had to become one.
    pub(super) fn wrongly_buried(&mut self) {
        let mut buried: Vec<_> = self.buried.iter().copied().collect();
        buried.sort();
        for place in buried {
            let found = self.inputs.binary_search_by(|input| input.record.place.cmp(place));
            let Ok(index) = found else {
                let detail = "there is no such record".to_owned();
                self.violated(ViolationKind::WronglyBuried, Some(place), detail);
                continue;
            };
            let rightly = matches!(self.plan.due(index), Some(Due::Buried | Due::Withheld));
            if !rightly && !self.rules.parked_age {
                let detail = describe(&self.inputs[index], "it could succeed");
                self.violated(ViolationKind::WronglyBuried, Some(place), detail);
            }
        }
    }

    /// The first revision of an entity, where it is fixed.
    pub(super) fn first(&self) -> Option<i64> {
        match self.rules.order {
            Order::Strict { first } | Order::Reject { first } => Some(first),
            Order::AsWritten | Order::LastWriteWins => None,
        }
    }
}

/// What is missing where a record has no outcome. What only repeats another
/// one, or is over, lacks what the other one lacks.
fn lack(due: Due) -> Option<(ViolationKind, &'static str)> {
    match due {
        Due::Applied => Some((ViolationKind::MissingEffect, "its effect is due")),
        Due::Parked | Due::Withheld => Some((ViolationKind::NotParked, "it is early")),
        Due::Buried => Some((ViolationKind::NotBuried, "it cannot succeed")),
        Due::Duplicate | Due::Stale => None,
    }
}

fn describe(input: &Input, what: &str) -> String {
    match input.message() {
        Some(message) => {
            format!("{}, {} revision {}: {what}", message.id, message.entity, message.revision)
        }
        None => what.to_owned(),
    }
}
