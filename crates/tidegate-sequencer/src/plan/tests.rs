//! Plans against a sequencer that takes one delta at a time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};
use tidegate_core::{
    Fingerprint, MessageId,
    Outcome::{self, Applied, Parked, Stale},
};
use tidegate_sql::tables::{Mark, entities::Standing, parked::Key};

use super::{Delta, Deltas, Passed, Plan, Reason, Refused, Rules, Verdict};

const STRICT: Rules =
    Rules { base: 0, skips_gaps: false, rejects: false, parked: 1_000, released: 1_000 };

const NEWEST: Rules = Rules { base: i64::MIN, skips_gaps: true, ..STRICT };

/// The message of a revision; another version of it says something else.
fn mark(entity: u8, revision: i64, version: u8) -> Mark {
    let text = format!("{entity}/{revision}/{version}");
    Mark { id: MessageId::of(text.as_bytes()), fingerprint: Fingerprint::of(text.as_bytes()) }
}

/// What a database would keep.
#[derive(Clone, Debug, Default)]
struct Tables {
    standings: BTreeMap<u8, Standing>,
    parked: BTreeMap<(u8, i64), (Mark, bool)>,
    careful: BTreeSet<u8>,
    applied: BTreeMap<u8, Vec<i64>>,
}

impl Tables {
    /// Runs one transaction, and returns the outcomes and whether there is more.
    fn run(
        &mut self,
        rules: Rules,
        batch: &[(u8, i64, u8)],
    ) -> Result<(Vec<Outcome>, bool), Refused> {
        let names: Vec<_> = batch.iter().map(|(entity, ..)| [*entity]).collect();
        let delta = |(name, &(entity, revision, version)): (_, &(u8, i64, u8))| Delta {
            entity: name,
            revision,
            mark: mark(entity, revision, version),
        };
        let names: Vec<&[u8]> = names.iter().map(<[u8; 1]>::as_slice).collect();
        let deltas = Deltas::new(rules, names.into_iter().zip(batch).map(delta).collect());
        let mut next = self.clone();
        let standings = next.stand(rules, &deltas);
        let waiting = deltas.waiting(&standings);
        let key = |(&(entity, revision), &(mark, withheld)): (&(u8, i64), &(Mark, bool))| Key {
            entity: vec![entity],
            revision,
            mark,
            withheld,
        };
        let stored = next.parked.iter().map(key).filter(|key| waiting.contains(&&*key.entity));
        let plan =
            deltas.decide(&standings, stored.collect(), |it| next.careful.contains(&it[0]))?;
        next.write(&deltas, &plan);
        let outcomes = plan.verdicts.iter().map(|verdict| match verdict {
            Verdict::Passed(_) => Applied,
            Verdict::Kept(outcome) => *outcome,
        });
        *self = next;
        Ok((outcomes.collect(), plan.has_more))
    }

    fn stand(&mut self, rules: Rules, deltas: &Deltas<'_>) -> Vec<Option<Standing>> {
        let mut standings = Vec::new();
        for run in deltas.runs() {
            let fresh = Standing { revision: rules.base, held: 0, last: None };
            let standing = self.standings.entry(run.entity[0]).or_insert(fresh);
            let advances = standing.held == 0 && (run.from..=run.to).contains(&standing.revision);
            standings.push((!advances).then_some(*standing));
            if advances {
                *standing = Standing { revision: run.last, held: 0, last: Some(run.mark) };
            }
        }
        standings
    }

    fn write(&mut self, deltas: &Deltas<'_>, plan: &Plan<'_>) {
        for (entity, revision) in &plan.taken {
            self.parked.remove(&(entity[0], *revision)).expect("it was parked");
        }
        for index in &plan.parked {
            let Delta { entity, revision, mark } = *deltas.get(*index);
            let before = self.parked.insert((entity[0], revision), (mark, false));
            assert_eq!(before, None, "it was not parked");
        }
        for (entity, standing) in &plan.settled {
            self.standings.insert(entity[0], *standing);
        }
        for passed in &plan.passed {
            let (entity, revision) = match passed {
                Passed::Own(index) => (deltas.get(*index).entity[0], deltas.get(*index).revision),
                Passed::Released(entity, revision) => (entity[0], *revision),
            };
            self.applied.entry(entity).or_default().push(revision);
        }
    }

    fn check(&self) {
        for (entity, standing) in &self.standings {
            let held = self.parked.keys().filter(|(it, _)| it == entity).count();
            assert_eq!(usize::try_from(standing.held), Ok(held), "{self:?}");
            let last = self.applied.get(entity).and_then(|it| it.last());
            assert!(last.is_none_or(|last| *last == standing.revision), "{self:?}");
        }
        assert!(self.parked.keys().all(|(it, at)| self.standings[it].revision < *at));
    }
}

/// One delta after the other, each with all that it releases.
#[derive(Clone, Default)]
struct Naive {
    revision: BTreeMap<u8, i64>,
    waiting: BTreeMap<(u8, i64), ()>,
    applied: BTreeMap<u8, Vec<i64>>,
}

impl Naive {
    fn take(&mut self, (entity, revision): (u8, i64)) {
        let at = self.revision.entry(entity).or_default();
        if revision <= *at {
            return;
        }
        self.waiting.insert((entity, revision), ());
        while self.waiting.remove(&(entity, *at + 1)).is_some() {
            *at += 1;
            self.applied.entry(entity).or_default().push(*at);
        }
    }
}

#[track_caller]
fn check(tables: &mut Tables, batch: &[(u8, i64, u8)], expected: &[Outcome], more: bool) {
    let run = tables.run(STRICT, batch);
    assert_eq!(run, Ok((expected.to_vec(), more)));
    tables.check();
}

#[test]
fn the_next_passes_and_the_rest_is_stale_or_early() {
    let mut tables = Tables::default();
    check(&mut tables, &[(1, 1, 0), (1, 2, 0), (2, 2, 0)], &[Applied, Applied, Parked], false);
    check(&mut tables, &[(1, 2, 0), (1, 1, 0), (1, 3, 0)], &[Stale, Stale, Applied], false);
    check(&mut tables, &[(2, 1, 0)], &[Applied], false);
    assert_eq!(tables.applied[&2], [1, 2]);
    assert!(tables.parked.is_empty());
}

#[test]
fn what_comes_in_another_order_within_a_batch_is_never_parked() {
    let mut tables = Tables::default();
    check(&mut tables, &[(1, 3, 0), (1, 1, 0), (1, 2, 0)], &[Applied; 3], false);
    check(&mut tables, &[(1, 5, 0), (1, 5, 0), (1, 4, 0)], &[Applied, Stale, Applied], false);
    assert_eq!(tables.applied[&1], [1, 2, 3, 4, 5]);
}

#[test]
fn another_message_of_a_revision_is_a_conflict() {
    let mut tables = Tables::default();
    let conflict = |index, other| Refused { index, reason: Reason::Conflict { other } };
    check(&mut tables, &[(1, 1, 0), (1, 4, 0)], &[Applied, Parked], false);
    for (batch, index, other) in [
        // Of the last one applied, of one that is parked, and within the batch.
        (vec![(2, 1, 0), (1, 1, 9)], 1, mark(1, 1, 0)),
        (vec![(1, 4, 9)], 0, mark(1, 4, 0)),
        (vec![(1, 2, 0), (1, 2, 9)], 1, mark(1, 2, 0)),
        (vec![(1, 3, 0), (1, 3, 9)], 1, mark(1, 3, 0)),
        (vec![(1, 2, 0), (1, 3, 0), (1, 4, 9)], 2, mark(1, 4, 0)),
    ] {
        assert_eq!(tables.clone().run(STRICT, &batch), Err(conflict(index, other)), "{batch:?}");
    }
    // One that says the same is none, whatever its id.
    check(&mut tables, &[(1, 1, 0), (1, 4, 0)], &[Stale, Parked], false);
}

#[test]
fn a_gap_is_refused_if_it_is_one_at_the_end_of_the_batch() {
    let rules = Rules { rejects: true, ..STRICT };
    let mut tables = Tables::default();
    assert!(tables.run(rules, &[(1, 2, 0), (1, 1, 0)]).is_ok());
    let gap = Refused { index: 1, reason: Reason::Gap { expected: 4 } };
    assert_eq!(tables.run(rules, &[(1, 3, 0), (1, 5, 0)]), Err(gap));
}

#[test]
fn no_more_of_an_entity_is_parked_than_the_bound() {
    let rules = Rules { parked: 2, ..STRICT };
    let mut tables = Tables::default();
    assert!(tables.run(rules, &[(1, 3, 0), (1, 4, 0)]).is_ok());
    let full = Refused { index: 0, reason: Reason::Full { expected: 1 } };
    assert_eq!(tables.run(rules, &[(1, 5, 0)]), Err(full));
    // What needs no room is taken.
    assert_eq!(tables.run(rules, &[(1, 3, 0)]), Ok((vec![Parked], false)));
    assert_eq!(tables.run(rules, &[(1, 1, 0)]), Ok((vec![Applied], false)));
    assert!(tables.run(rules, &[(1, 2, 0), (1, 5, 0)]).is_ok());
    assert_eq!(tables.applied[&1], [1, 2, 3, 4, 5]);
}

#[test]
fn a_transaction_releases_a_bounded_number() {
    let rules = Rules { released: 3, ..STRICT };
    let mut tables = Tables::default();
    let early: Vec<_> = (2..10).map(|revision| (1, revision, 0)).collect();
    assert!(tables.run(rules, &early).is_ok());
    assert_eq!(tables.run(rules, &[(1, 1, 0)]), Ok((vec![Applied], true)));
    assert_eq!(tables.applied[&1], [1, 2, 3, 4]);
    assert_eq!(tables.run(rules, &[(1, 1, 0)]), Ok((vec![Stale], true)));
    assert_eq!(tables.run(rules, &[(1, 1, 0)]), Ok((vec![Stale], false)));
    assert_eq!(tables.applied[&1], (1..10).collect::<Vec<_>>());
    tables.check();
}

#[test]
fn a_careful_entity_releases_one_at_a_time_and_alone() {
    let mut tables = Tables::default();
    check(&mut tables, &[(1, 2, 0), (1, 3, 0), (2, 2, 0)], &[Parked; 3], false);
    tables.careful = BTreeSet::from([1]);
    // Of the other entity, all pass as ever.
    check(&mut tables, &[(1, 1, 0), (2, 1, 0)], &[Applied; 2], true);
    assert_eq!((&*tables.applied[&1], &*tables.applied[&2]), (&[1][..], &[1, 2][..]));
    check(&mut tables, &[(1, 1, 0)], &[Stale], true);
    check(&mut tables, &[(1, 1, 0)], &[Stale], false);
    assert_eq!(tables.applied[&1], [1, 2, 3]);
}

#[test]
fn what_is_withheld_keeps_its_entity_waiting() {
    let mut tables = Tables::default();
    check(&mut tables, &[(1, 2, 0), (1, 3, 0)], &[Parked; 2], false);
    tables.parked.get_mut(&(1, 2)).unwrap().1 = true;
    check(&mut tables, &[(1, 1, 0)], &[Applied], false);
    assert_eq!(tables.applied[&1], [1]);
    // Its like is tried in its place, and what it kept waiting follows.
    check(&mut tables, &[(1, 2, 0)], &[Applied], false);
    assert_eq!(tables.applied[&1], [1, 2, 3]);
}

#[test]
fn the_newest_wins_where_gaps_are_skipped() {
    let mut tables = Tables::default();
    let batch = [(1, 7, 0), (1, 3, 0), (1, 9, 0), (2, i64::MIN + 1, 0)];
    let outcomes = vec![Applied, Stale, Applied, Applied];
    assert_eq!(tables.run(NEWEST, &batch), Ok((outcomes, false)));
    assert_eq!(tables.run(NEWEST, &[(1, 8, 0), (1, 20, 0)]), Ok((vec![Stale, Applied], false)));
    let conflict = Reason::Conflict { other: mark(1, 20, 0) };
    assert_eq!(tables.run(NEWEST, &[(1, 20, 9)]), Err(Refused { index: 0, reason: conflict }));
    assert_eq!(tables.applied[&1], [7, 9, 20]);
}

/// A stream in batches of these sizes, which are enough for it.
fn batches<'a, D>(stream: &'a [D], sizes: &[usize]) -> Vec<&'a [D]> {
    let mut rest = stream;
    let batch = |size: &usize| {
        let (batch, behind) = rest.split_at(rest.len().min(*size));
        rest = behind;
        batch
    };
    sizes.iter().map(batch).filter(|batch| !batch.is_empty()).collect()
}

proptest! {
    // Whatever comes, in whatever batches, and with however few releases: in the
    // end it is as if deltas had been taken one by one.
    #[test]
    fn plans_do_what_one_delta_at_a_time_does(
        stream in vec((0..3_u8, 1..12_i64), 1..60),
        sizes in vec(1..9_usize, 60),
        released in 1..4_usize,
        careful in vec(0..3_u8, 0..2),
    ) {
        let rules = Rules { released, ..STRICT };
        let mut tables = Tables { careful: careful.into_iter().collect(), ..Tables::default() };
        let mut naive = Naive::default();
        for batch in batches(&stream, &sizes) {
            batch.iter().for_each(|delta| naive.take(*delta));
            let batch: Vec<_> = batch.iter().map(|&(entity, at)| (entity, at, 0)).collect();
            let (outcomes, mut more) = tables.run(rules, &batch).unwrap();
            for (outcome, (entity, at, _)) in outcomes.iter().zip(&batch) {
                let is_parked = tables.parked.contains_key(&(*entity, *at));
                prop_assert_eq!(*outcome == Parked, is_parked);
            }
            while more {
                (_, more) = tables.run(rules, &batch).unwrap();
            }
            tables.check();
            prop_assert_eq!(&tables.applied, &naive.applied);
            let waiting: BTreeSet<_> = tables.parked.keys().copied().collect();
            prop_assert_eq!(waiting, naive.waiting.keys().copied().collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn the_newest_of_each_entity_is_applied_last(
        stream in vec((0..3_u8, 1..20_i64), 1..60),
        sizes in vec(1..9_usize, 60),
    ) {
        let mut tables = Tables::default();
        let mut newest: BTreeMap<u8, i64> = BTreeMap::new();
        for batch in batches(&stream, &sizes) {
            for (entity, at) in batch {
                let newest = newest.entry(*entity).or_default();
                *newest = (*newest).max(*at);
            }
            let batch: Vec<_> = batch.iter().map(|&(entity, at)| (entity, at, 0)).collect();
            prop_assert!(tables.run(NEWEST, &batch).is_ok());
            tables.check();
        }
        for (entity, newest) in newest {
            let applied = &tables.applied[&entity];
            prop_assert_eq!(applied.last(), Some(&newest));
            prop_assert!(applied.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
