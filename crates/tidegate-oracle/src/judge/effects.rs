//! The application's effects: which, how often, in which order, by whom.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Case;
use crate::{Due, Effect, MessageId, Order, Partition, ViolationKind};

impl<'a> Case<'a> {
    /// Each effect is the first of its message, and what it asks for.
    pub(super) fn effects(&mut self) {
        let mut seen = HashSet::new();
        for effect in self.effects.clone() {
            let Effect { id, entity, revision, amount, place, worker, .. } = effect;
            let what = format!("{id}, {entity} revision {revision}, amount {amount}, by {worker}");
            if !seen.insert(*id) {
                self.violated(ViolationKind::SecondEffect, Some(place), what);
            } else if let Some((kind, why)) = self.wrong(effect) {
                self.violated(kind, Some(place), format!("{what}: {why}"));
            }
        }
    }

    /// What is wrong with an effect.
    fn wrong(&self, effect: &Effect) -> Option<(ViolationKind, &'static str)> {
        use ViolationKind::{ConflictApplied, UnexpectedEffect, WrongEffect};
        let Some(records) = self.records.get(&effect.id) else {
            return Some((UnexpectedEffect, "there is no such message"));
        };
        let is_poison =
            |&index: &usize| self.inputs[index].message().is_none_or(|it| !it.appliable);
        if records.iter().all(is_poison) {
            return Some((UnexpectedEffect, "no database takes it"));
        }
        let mut asking = records.iter().filter(|&&index| self.is_of(effect, index)).peekable();
        if asking.peek().is_none() {
            return Some((WrongEffect, "its message asks for something else"));
        }
        if !records.iter().any(|&index| self.inputs[index].record.place == effect.place) {
            return Some((WrongEffect, "its message does not lie there"));
        }
        if asking.any(|&index| self.plan.due(index) != Some(Due::Buried)) {
            return None;
        }
        // The first payload of a message wins, and the first message of a
        // revision.
        Some(match self.rules.order {
            Order::Reject { .. } => (UnexpectedEffect, "it came too early"),
            _ => (ConflictApplied, "it contradicts an earlier record"),
        })
    }

    /// An entity's effects are in its order.
    pub(super) fn order(&mut self) {
        let first_effects = self.first_effects();
        match self.rules.order {
            Order::AsWritten => self.as_written(&first_effects),
            Order::Strict { first } | Order::Reject { first } => {
                self.by_revision(&first_effects, Some(first));
            }
            Order::LastWriteWins => self.by_revision(&first_effects, None),
        }
    }

    /// The effects in the order in which they were made, without repetitions.
    fn first_effects(&self) -> Vec<&'a Effect> {
        let mut seen = HashSet::new();
        self.effects.iter().copied().filter(|effect| seen.insert(effect.id)).collect()
    }

    fn as_written(&mut self, effects: &[&'a Effect]) {
        let mut last = HashMap::new();
        for effect in effects {
            let Some(records) = self.records.get(&effect.id) else { continue };
            let record = &self.inputs[records[0]].record;
            let place = &record.place;
            // Without a key, each record is on its own.
            let Some(key) = &record.key else { continue };
            let offset = last.entry((&place.partition, key)).or_insert(place.offset);
            if place.offset < *offset {
                let detail = format!("{} was applied after offset {offset}", effect.id);
                self.violated(ViolationKind::OutOfOrder, Some(place), detail);
            } else {
                *offset = place.offset;
            }
        }
    }

    /// `first` is the first revision where none may be left out.
    fn by_revision(&mut self, effects: &[&'a Effect], first: Option<i64>) {
        let due = self.due_revisions();
        let mut last = HashMap::new();
        for Effect { entity, revision, place, .. } in effects {
            let before = last.insert(entity.as_str(), *revision);
            if let Some(before) = before.filter(|before| revision <= before) {
                let detail = format!("{entity} revision {revision} was applied after {before}");
                self.violated(ViolationKind::OutOfOrder, Some(place), detail);
                last.insert(entity, before);
                continue;
            }
            let Some(first) = first else { continue };
            // A revision that is due and was left out is missing, or comes
            // later: either is a violation of its own.
            let mut between = before.map_or(first, |before| before + 1)..*revision;
            if let Some(gap) = between.find(|it| !due.contains(&(entity.as_str(), *it))) {
                let detail = format!("{entity} revision {revision} was applied without {gap}");
                self.violated(ViolationKind::OutOfOrder, Some(place), detail);
            }
        }
    }

    fn due_revisions(&self) -> HashSet<(&'a str, i64)> {
        let inputs = self.inputs.iter().enumerate();
        let applied = inputs.filter(|(index, _)| self.plan.due(*index) == Some(Due::Applied));
        let messages = applied.filter_map(|(_, input)| input.message());
        messages.map(|message| (message.entity.as_str(), message.revision)).collect()
    }

    /// An owner whose successor has made an effect makes none.
    pub(super) fn stale_owners(&mut self) {
        let mut owners = HashMap::<&Partition, Owners<'_>>::new();
        for effect in self.effects.clone() {
            let Effect { id, place, worker, epoch, .. } = effect;
            let owners = owners.entry(&place.partition).or_default();
            match owners.see((*epoch, worker)) {
                Seen::Same => {}
                Seen::New => self.handovers += 1,
                Seen::Stale => {
                    self.by_stale_owners += 1;
                    if self.rules.guard {
                        let detail = format!("{id} was applied by {worker} in epoch {epoch}");
                        self.violated(ViolationKind::StaleOwner, Some(place), detail);
                    }
                }
            }
        }
    }

    /// An entity's sum is that of its effects.
    pub(super) fn balances(&mut self) {
        let Some(balances) = &self.evidence.balances else { return };
        let mut sums = BTreeMap::<&str, i64>::new();
        for effect in &self.effects {
            *sums.entry(&effect.entity).or_default() += effect.amount;
        }
        for balance in balances {
            let sum = sums.remove(balance.entity.as_str()).unwrap_or_default();
            if sum != balance.amount {
                let detail = format!(
                    "{} has {}, its effects sum up to {sum}",
                    balance.entity, balance.amount
                );
                self.violated(ViolationKind::WrongBalance, None, detail);
            }
        }
        for (entity, sum) in sums {
            let detail = format!("{entity} has no balance, its effects sum up to {sum}");
            self.violated(ViolationKind::WrongBalance, None, detail);
        }
    }

    /// The messages that have an effect.
    pub(super) fn has_effect(&self, id: MessageId) -> bool {
        self.by_message.contains_key(&id)
    }
}

/// The owners that a partition has had, in the order of their first effects.
#[derive(Default)]
struct Owners<'a> {
    current: Option<(i64, &'a String)>,
    past: HashSet<(i64, &'a String)>,
}

enum Seen {
    Same,
    New,
    Stale,
}

// ===== impl Owners =====

impl<'a> Owners<'a> {
    // Of the same generation and another member is a static member that was
    // restarted: the newer one is who came later.
    fn see(&mut self, owner: (i64, &'a String)) -> Seen {
        let Some(current) = self.current else {
            self.current = Some(owner);
            return Seen::Same;
        };
        if current == owner {
            return Seen::Same;
        }
        if owner.0 < current.0 || self.past.contains(&owner) {
            return Seen::Stale;
        }
        self.past.insert(current);
        self.current = Some(owner);
        Seen::New
    }
}
