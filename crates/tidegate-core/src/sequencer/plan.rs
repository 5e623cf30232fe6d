//! What becomes of the deltas of a batch.

use std::collections::{BTreeMap, HashSet};

use super::{GapPolicy, Key, Rules, Run, Standing};
use crate::{Mark, Outcome, Outcomes};

/// A delta of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// Its entity.
    pub entity: &'a [u8],
    /// Its revision.
    pub revision: i64,
    /// Its message.
    pub mark: Mark,
}

/// The deltas of a batch, and which are of one entity.
#[derive(Debug)]
pub struct Deltas<'a> {
    rules: Rules,
    each: Vec<Delta<'a>>,
    // Their indexes by entity, since all who sequence lock in this order, and those
    // of one entity as they came.
    sorted: Vec<usize>,
}

/// What a transaction met when it locked the entities of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met<'a> {
    /// Where the entity of each run stands, if it did not advance by itself.
    pub standings: Vec<Option<Standing>>,
    /// What is parked of these.
    pub stored: Vec<Key>,
    /// Those of which a parked delta passes only alone.
    pub careful: HashSet<&'a [u8]>,
}

/// What a transaction is to do.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// What becomes of each delta.
    pub verdicts: Vec<Verdict>,
    /// What the inner service is called with, in this order.
    pub passed: Vec<Passed<'a>>,
    /// Parked deltas that are taken out: those that pass, and those whose place
    /// a delta of the batch took.
    pub taken: Vec<(&'a [u8], i64)>,
    /// Deltas of the batch that are parked.
    pub parked: Vec<usize>,
    /// Where entities stand then that did not advance by themselves.
    pub settled: Vec<(&'a [u8], Standing)>,
    /// How many parked deltas pass.
    pub released: usize,
    /// Whether more parked deltas could pass.
    pub has_more: bool,
    /// Careful entities of which nothing that is parked can pass any more.
    pub exhausted: Vec<&'a [u8]>,
}

/// What becomes of a delta of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes, as this one of all that do.
    Passed(usize),
    /// It does not, and that is its outcome.
    Kept(Outcome),
}

/// A delta that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed<'a> {
    /// Of the batch.
    Own(usize),
    /// Parked before.
    Released(&'a [u8], i64),
}

/// A delta cannot be taken, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The delta.
    pub index: usize,
    /// Why it cannot be taken.
    pub reason: Reason,
}

/// Why a delta cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another message has its revision.
    Conflict {
        /// That message.
        other: Mark,
    },
    /// It comes before its predecessor.
    Gap {
        /// The revision that should have come.
        expected: i64,
    },
    /// Too many of its entity wait already.
    Full {
        /// The revision that they wait for.
        expected: i64,
    },
    /// Its revision lies before all that an entity can have.
    NoRevision,
}

/// An entity while the deltas of a batch are gone through.
struct Desk<'a> {
    entity: &'a [u8],
    standing: Standing,
    before: Standing,
    // Parked before the batch.
    stored: BTreeMap<i64, (Mark, bool)>,
    // Early deltas of the batch, by their index.
    early: BTreeMap<i64, usize>,
    // Deltas of the batch that say the same as one that waits, by their index.
    likes: BTreeMap<i64, Vec<usize>>,
    is_careful: bool,
    // Whether it advanced by itself, and nothing is to be written.
    is_settled: bool,
}

// ===== impl Deltas =====

impl<'a> Deltas<'a> {
    /// The deltas of a batch, in its order.
    ///
    /// # Errors
    ///
    /// At the first one that has no revision.
    pub fn new(rules: Rules, each: Vec<Delta<'a>>) -> Result<Self, Refused> {
        if let Some(index) = each.iter().position(|delta| !rules.allow(delta.revision)) {
            return Err(Refused { index, reason: Reason::NoRevision });
        }
        let mut sorted: Vec<_> = (0..each.len()).collect();
        sorted.sort_by_key(|index| each[*index].entity);
        Ok(Self { rules, each, sorted })
    }

    /// By which rules they are taken.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The delta at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> &Delta<'a> {
        &self.each[index]
    }

    /// The revisions of each entity, as one advance where they are one, sorted by
    /// entity.
    #[must_use]
    pub fn runs(&self) -> Vec<Run<'a>> {
        let mut deltas = Vec::new();
        let run = |indexes: &[usize]| {
            deltas.clear();
            deltas.extend(indexes.iter().map(|index| self.each[*index]));
            self.run(&mut deltas)
        };
        self.entities().map(run).collect()
    }

    /// The indexes of the deltas of each entity, sorted by entity.
    fn entities(&self) -> impl Iterator<Item = &[usize]> {
        self.sorted.chunk_by(|one, other| self.each[*one].entity == self.each[*other].entity)
    }

    fn run(&self, deltas: &mut [Delta<'a>]) -> Run<'a> {
        if !self.rules.newest_wins {
            // All of them pass in one transaction, in whichever order they come.
            deltas.sort_by_key(|delta| delta.revision);
        }
        let is_one = deltas.windows(2).all(|pair| match self.rules.newest_wins {
            true => pair[0].revision < pair[1].revision,
            false => pair[0].revision.checked_add(1) == Some(pair[1].revision),
        });
        let before = deltas[0].revision.saturating_sub(1);
        let Delta { entity, revision: last, mark } = deltas[deltas.len() - 1];
        let (from, to) = match (is_one, self.rules.newest_wins) {
            (true, true) => (i64::MIN, before),
            (true, false) => (before, before),
            // At none.
            (false, _) => (1, 0),
        };
        Run { entity, from, to, last, mark }
    }

    /// The entities that did not advance by themselves, and have parked deltas.
    #[must_use]
    pub fn waiting(&self, standings: &[Option<Standing>]) -> Vec<&'a [u8]> {
        let waits = |standing: &Option<Standing>| standing.is_some_and(|it| it.held > 0);
        let waiting = self.entities().zip(standings).filter(|(_, standing)| waits(standing));
        waiting.map(|(indexes, _)| self.each[indexes[0]].entity).collect()
    }

    /// Decides, knowing what the transaction met.
    ///
    /// # Errors
    ///
    /// At the first delta that cannot be taken.
    ///
    /// # Panics
    ///
    /// When there is not a standing for each run.
    pub fn decide(&self, met: Met<'a>) -> Result<Plan<'a>, Refused> {
        let (mut desks, desk_of) = self.desks(met);
        let mut plan = Plan {
            verdicts: vec![Verdict::Kept(Outcome::Stale); self.each.len()],
            passed: Vec::with_capacity(self.each.len()),
            ..Plan::default()
        };
        for (index, desk) in desk_of.into_iter().enumerate() {
            self.add(index, &mut desks[desk], &mut plan)?;
        }
        for desk in &mut desks {
            self.release(desk, &mut plan);
        }
        // What is tried alone is tried when there is nothing else.
        if plan.passed.is_empty()
            && let Some(desk) = desks.iter_mut().find(|desk| desk.can_release())
        {
            plan.release_one(desk);
        }
        for desk in desks {
            self.close(desk, &mut plan)?;
        }
        Ok(plan)
    }

    /// A desk for each entity, sorted, and at which each delta is.
    fn desks(&self, met: Met<'a>) -> (Vec<Desk<'a>>, Vec<usize>) {
        let Met { standings, stored, careful } = met;
        let mut desks = Vec::with_capacity(standings.len());
        let mut desk_of = vec![0; self.each.len()];
        for (indexes, standing) in self.entities().zip(standings) {
            for index in indexes {
                desk_of[*index] = desks.len();
            }
            let entity = self.each[indexes[0]].entity;
            let first = indexes.iter().map(|index| self.each[*index].revision).min();
            let before = first.unwrap_or(self.rules.base()).saturating_sub(1);
            let is_settled = standing.is_none();
            // Where it stood, whose run began there.
            let standing = standing.unwrap_or(Standing { revision: before, held: 0, last: None });
            desks.push(Desk {
                entity,
                standing,
                before: standing,
                stored: BTreeMap::new(),
                early: BTreeMap::new(),
                likes: BTreeMap::new(),
                is_careful: careful.contains(entity),
                is_settled,
            });
        }
        for Key { entity, revision, mark, withheld } in stored {
            if let Ok(desk) = desks.binary_search_by(|desk| desk.entity.cmp(&entity)) {
                desks[desk].stored.insert(revision, (mark, withheld));
            }
        }
        (desks, desk_of)
    }

    fn add(&self, index: usize, desk: &mut Desk<'a>, plan: &mut Plan<'a>) -> Result<(), Refused> {
        let Delta { revision, mark, .. } = self.each[index];
        let at = desk.standing.revision;
        let other = match revision {
            _ if revision < at => None,
            _ if revision == at => desk.standing.last,
            _ => desk
                .stored
                .get(&revision)
                .map(|(mark, _)| *mark)
                .or_else(|| desk.early.get(&revision).map(|index| self.each[*index].mark)),
        };
        if let Some(other) = other.filter(|other| !is_same(other, &mark)) {
            return Err(Refused { index, reason: Reason::Conflict { other } });
        }
        if revision <= at {
            return Ok(());
        }
        if revision > desk.standing.next() && !self.rules.newest_wins {
            plan.verdicts[index] = Verdict::Kept(Outcome::Parked);
            match other {
                Some(_) => desk.likes.entry(revision).or_default().push(index),
                None => {
                    desk.early.insert(revision, index);
                }
            }
            return Ok(());
        }
        if desk.stored.remove(&revision).is_some() {
            // It waits for nothing more: its like is here.
            desk.standing.held -= 1;
            plan.taken.push((desk.entity, revision));
        }
        self.pass(index, desk, plan);
        self.release(desk, plan);
        Ok(())
    }

    fn pass(&self, index: usize, desk: &mut Desk<'a>, plan: &mut Plan<'a>) {
        let Delta { revision, mark, .. } = self.each[index];
        plan.verdicts[index] = Verdict::Passed(plan.passed.len());
        plan.passed.push(Passed::Own(index));
        plan.advance(desk, Standing { revision, last: Some(mark), ..desk.standing });
    }

    /// Lets pass what has waited for the revision at which an entity stands now.
    fn release(&self, desk: &mut Desk<'a>, plan: &mut Plan<'a>) {
        loop {
            if let Some(index) = desk.early.remove(&desk.standing.next()) {
                self.pass(index, desk, plan);
            } else if desk.can_release()
                && !desk.is_careful
                && plan.released < self.rules.bounds.released
            {
                plan.release_one(desk);
            } else {
                return;
            }
        }
    }

    /// Notes what is left of an entity.
    fn close(&self, desk: Desk<'a>, plan: &mut Plan<'a>) -> Result<(), Refused> {
        let expected = desk.standing.next();
        let rejects = self.rules.gaps == GapPolicy::Reject;
        if let Some((_, index)) = desk.early.first_key_value().filter(|_| rejects) {
            return Err(Refused { index: *index, reason: Reason::Gap { expected } });
        }
        if let Some((_, index)) = desk.early.last_key_value()
            && desk.stored.len() + desk.early.len() > self.rules.bounds.per_entity
        {
            return Err(Refused { index: *index, reason: Reason::Full { expected } });
        }
        if desk.can_release() {
            plan.has_more = true;
        } else if desk.is_careful {
            plan.exhausted.push(desk.entity);
        }
        let mut standing = desk.standing;
        standing.held += i32::try_from(desk.early.len()).unwrap_or(i32::MAX);
        plan.parked.extend(desk.early.into_values());
        if !desk.is_settled && standing != desk.before {
            plan.settled.push((desk.entity, standing));
        }
        Ok(())
    }
}

/// Whether two deltas of one revision are the same: one message, or messages that
/// say the same.
fn is_same(one: &Mark, other: &Mark) -> bool {
    one.id == other.id || one.fingerprint == other.fingerprint
}

// ===== impl Plan =====

impl<'a> Plan<'a> {
    /// How many deltas of the batch do not pass, with this outcome.
    #[must_use]
    pub fn kept(&self, outcome: Outcome) -> usize {
        self.verdicts.iter().filter(|it| **it == Verdict::Kept(outcome)).count()
    }

    /// The parked deltas that pass, in order.
    pub fn released(&self) -> impl Iterator<Item = (&'a [u8], i64)> {
        self.passed.iter().filter_map(|passed| match passed {
            Passed::Own(_) => None,
            Passed::Released(entity, revision) => Some((*entity, *revision)),
        })
    }

    /// The parked delta that passes, if nothing else does.
    #[must_use]
    pub fn alone(&self) -> Option<(&'a [u8], i64)> {
        match self.passed[..] {
            [Passed::Released(entity, revision)] => Some((entity, revision)),
            _ => None,
        }
    }

    /// The revision that an entity waits for then, if it is settled.
    #[must_use]
    pub fn expected(&self, entity: &[u8]) -> Option<i64> {
        let settled = self.settled.iter().find(|(settled, _)| *settled == entity);
        settled.map(|(_, standing)| standing.next())
    }

    /// The outcomes of the deltas of the batch, knowing those of what passed.
    ///
    /// # Panics
    ///
    /// When these are fewer than what passed.
    pub fn outcomes(&self, applied: &[Outcome]) -> Outcomes {
        let outcome = |verdict: &Verdict| match verdict {
            Verdict::Passed(index) => applied[*index],
            Verdict::Kept(outcome) => *outcome,
        };
        self.verdicts.iter().map(outcome).collect::<Outcomes>().with_more(self.has_more)
    }

    fn release_one(&mut self, desk: &mut Desk<'a>) {
        let revision = desk.standing.next();
        let (mark, _) = desk.stored.remove(&revision).expect("it is parked");
        self.taken.push((desk.entity, revision));
        self.passed.push(Passed::Released(desk.entity, revision));
        self.released += 1;
        let held = desk.standing.held - 1;
        self.advance(desk, Standing { revision, held, last: Some(mark) });
    }

    fn advance(&mut self, desk: &mut Desk<'a>, to: Standing) {
        desk.standing = to;
        for like in desk.likes.remove(&to.revision).unwrap_or_default() {
            self.verdicts[like] = Verdict::Kept(Outcome::Stale);
        }
    }
}

// ===== impl Desk =====

impl Desk<'_> {
    /// Whether its next delta is parked, and may be tried.
    fn can_release(&self) -> bool {
        self.stored.get(&self.standing.next()).is_some_and(|(_, is_withheld)| !is_withheld)
    }
}

#[cfg(test)]
mod tests;
