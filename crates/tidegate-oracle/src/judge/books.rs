//! The layers' own tables: markers, positions, parked deltas.

use std::collections::{HashMap, HashSet};

use super::Case;
use crate::{Due, Effect, Marker, MessageId, Parked, Place, Position, ViolationKind};

impl Case<'_> {
    /// A message is marked if and only if it has an outcome.
    pub(super) fn markers(&mut self) {
        if !self.rules.inbox {
            return;
        }
        let markers = self.evidence.markers.as_deref().unwrap_or_default();
        for Marker { id, place } in markers {
            if !self.marked_rightly(*id) {
                let detail = format!("{id} is marked, and has no effect and no other outcome");
                self.violated(ViolationKind::MarkerWithoutEffect, Some(place), detail);
            }
        }
        let marked: HashSet<_> = markers.iter().map(|marker| marker.id).collect();
        let mut seen = HashSet::new();
        for Effect { id, place, .. } in self.effects.clone() {
            // What is of no message is a violation of another kind.
            let known = self.records.contains_key(id);
            if known && seen.insert(*id) && !marked.contains(id) && !self.pruned(place) {
                let detail = format!("{id} has an effect and is not marked");
                self.violated(ViolationKind::EffectWithoutMarker, Some(place), detail);
            }
        }
    }

    fn marked_rightly(&self, id: MessageId) -> bool {
        let Some(records) = self.records.get(&id) else { return false };
        self.has_effect(id)
            || records.iter().any(|&index| {
                // A dead letter marks nothing, unless it was parked before.
                let due = self.plan.due(index);
                due == Some(Due::Stale)
                    || self.is_parked(index)
                    || due != Some(Due::Buried)
                        && self.buried.contains(&self.inputs[index].record.place)
            })
    }

    fn pruned(&self, place: &Place) -> bool {
        self.evidence.floors.iter().any(|floor| {
            floor.partition == place.partition && (floor.low..floor.floor).contains(&place.offset)
        })
    }

    /// Whether a record is parked, itself or as an earlier copy of it.
    pub(super) fn is_parked(&self, index: usize) -> bool {
        let Some(message) = self.inputs[index].message() else { return false };
        let Some(parked) = self.parked.get(&(message.entity.as_str(), message.revision)) else {
            return false;
        };
        self.records[&message.id].iter().any(|&other| {
            self.inputs[other].record.place == parked.place
                && self.inputs[other].repeats(&self.inputs[index])
        })
    }

    /// A sequencer's position is the last revision that was applied.
    pub(super) fn positions(&mut self) {
        if !self.rules.sequencer {
            return;
        }
        let positions = self.evidence.positions.iter().flatten();
        let mut positions: HashMap<_, _> =
            positions.map(|Position { entity, revision }| (entity.as_str(), *revision)).collect();
        let mut wrong = Vec::new();
        for (&entity, &applied) in &self.revisions {
            let position = positions.remove(entity);
            if position != Some(applied) {
                let position = position.map_or_else(|| "none".to_owned(), |it| it.to_string());
                wrong.push(format!("{entity} is at revision {position}, applied is {applied}"));
            }
        }
        // What has no effect has not moved.
        let first = self.first();
        for (entity, revision) in positions {
            if first.is_some_and(|first| revision >= first) {
                wrong.push(format!("{entity} is at revision {revision}, applied is none"));
            }
        }
        wrong.sort();
        for detail in wrong {
            self.violated(ViolationKind::WrongPosition, None, detail);
        }
    }

    /// No parked delta could go on.
    pub(super) fn parked(&mut self) {
        let mut parked: Vec<_> = self.parked.values().copied().collect();
        parked.sort_by_key(|parked| &parked.place);
        for Parked { entity, revision, place, withheld } in parked {
            let could_go_on = self.revisions.get(entity.as_str()).map(|last| *revision <= last + 1);
            let could_go_on = could_go_on.unwrap_or_else(|| Some(*revision) == self.first());
            let takes = self.taken_by_a_database(place);
            if could_go_on && (takes || !*withheld) {
                let withheld = if *withheld { ", withheld" } else { "" };
                let detail = format!("{entity} revision {revision} could go on{withheld}");
                self.violated(ViolationKind::NeverReleased, Some(place), detail);
            }
        }
    }

    fn taken_by_a_database(&self, place: &Place) -> bool {
        let found = self.inputs.binary_search_by(|input| input.record.place.cmp(place));
        let message = found.ok().and_then(|index| self.inputs[index].message());
        message.is_some_and(|message| message.appliable)
    }
}
