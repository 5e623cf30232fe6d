//! What the group has committed.

use std::collections::BTreeMap;

use super::Case;
use crate::{Bounds, Evidence, Partition, ViolationKind};

/// The committed offsets of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offsets {
    /// The highest one, since the offsets were last set back on purpose.
    pub(super) highest: Option<i64>,
    /// The one that was seen last.
    pub(super) last: Option<i64>,
}

pub(super) fn of(evidence: &Evidence) -> BTreeMap<&Partition, Offsets> {
    let committed = || evidence.committed.iter().flatten();
    let era = committed().map(|it| it.era).max();
    let mut offsets = BTreeMap::<_, Offsets>::new();
    for seen in committed().filter(|it| Some(it.era) == era) {
        let offsets = offsets.entry(&seen.partition).or_default();
        offsets.last = seen.offset;
        offsets.highest = offsets.highest.max(seen.offset);
    }
    offsets
}

impl Case<'_> {
    pub(super) fn offsets(&mut self) {
        self.went_back();
        // A partition that is not in the log has nothing in it.
        let mut all: BTreeMap<_, _> =
            self.offsets.keys().map(|it| (*it, Bounds { start: 0, end: 0 })).collect();
        all.extend(self.evidence.log.bounds().iter().map(|(at, bounds)| (at, *bounds)));
        for (partition, Bounds { start, end }) in all {
            let Offsets { highest, last } =
                self.offsets.get(partition).copied().unwrap_or_default();
            let outside = [highest, last].into_iter().flatten();
            if let Some(offset) = outside.into_iter().find(|it| !(start..=end).contains(it)) {
                let detail = format!("{offset} is committed, the log is {start}..{end}");
                let place = partition.at(offset);
                self.violated(ViolationKind::CommittedOutsideLog, Some(&place), detail);
            }
            // A partition that never had a record needs no offset.
            if self.rules.consumed && last.unwrap_or(start) != end {
                let last = last.map_or_else(|| "nothing".to_owned(), |it| it.to_string());
                let detail = format!("{last} is committed, the log ends at {end}");
                let place = partition.at(end);
                self.violated(ViolationKind::NotConsumed, Some(&place), detail);
            }
        }
    }

    fn went_back(&mut self) {
        let mut before = BTreeMap::new();
        for seen in self.evidence.committed.iter().flatten() {
            let key = (&seen.partition, seen.era);
            // An offset that is gone has gone back as far as one can.
            let Some(last) = before.insert(key, seen.offset).flatten() else { continue };
            if seen.offset.is_some_and(|offset| offset >= last) {
                continue;
            }
            self.went_back += 1;
            if !self.rules.may_go_back {
                let now = seen.offset.map_or_else(|| "nothing".to_owned(), |it| it.to_string());
                let place = seen.partition.at(seen.offset.unwrap_or_default());
                let detail = format!("from {last} to {now}, seen at {}", seen.at);
                self.violated(ViolationKind::CommittedWentBack, Some(&place), detail);
            }
        }
    }
}
