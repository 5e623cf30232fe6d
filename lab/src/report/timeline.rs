//! Who worked on what, and when, as it can be drawn.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    evidence::{Evidence, MemberEvidence},
    says,
    worker::Logged,
};

/// What happened on each partition, over time. Times are in milliseconds since
/// the Unix epoch.
#[derive(Debug, Default, Serialize)]
pub(super) struct Timeline {
    partitions: BTreeSet<i32>,
    owners: Vec<Owned>,
    drains: Vec<Drain>,
    effects: Vec<Effects>,
    commits: Vec<Commit>,
    violations: Vec<Found>,
}

/// A stack worked on a partition.
#[derive(Debug, PartialEq, Serialize)]
struct Owned {
    partition: i32,
    owner: String,
    epoch: i64,
    from: i64,
    to: i64,
    /// How it ended.
    end: &'static str,
}

/// A revoke waited for what ran.
#[derive(Debug, PartialEq, Serialize)]
struct Drain {
    partition: i32,
    owner: String,
    from: i64,
    to: i64,
    /// How it ended.
    how: &'static str,
}

/// Effects that lie so close together that they are drawn as one.
#[derive(Debug, PartialEq, Serialize)]
struct Effects {
    partition: i32,
    owner: String,
    at: i64,
    count: u32,
}

/// The group's committed offset changed.
#[derive(Debug, PartialEq, Serialize)]
struct Commit {
    partition: i32,
    at: i64,
    offset: i64,
    back: bool,
}

/// Something that does not agree with the promise.
#[derive(Debug, PartialEq, Serialize)]
struct Found {
    kind: String,
    partition: Option<i32>,
    offset: Option<i64>,
    at: Option<i64>,
    detail: String,
}

/// What is open while a member's log is read.
struct Reading<'a> {
    member: &'a MemberEvidence,
    topic: &'a str,
    epoch: i64,
    open: BTreeMap<i32, (i64, i64)>,
    revoked: Option<i64>,
    timeline: &'a mut Timeline,
}

// More would not be seen: a page is not wider.
const COLUMNS: i64 = 1200;

// ===== impl Timeline =====

impl Timeline {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let mut timeline = Self::default();
        for member in &evidence.members {
            let mut reading = Reading {
                member,
                topic: &evidence.topic,
                epoch: 0,
                open: BTreeMap::new(),
                revoked: None,
                timeline: &mut timeline,
            };
            member.events.iter().for_each(|event| reading.read(event));
            reading.close_all(member.ended.unwrap_or(evidence.ended), "ended");
        }
        timeline.read_effects(evidence);
        timeline.read_commits(evidence);
        timeline.read_violations(evidence);
        let owned = timeline.owners.iter().map(|it| it.partition);
        let made = timeline.effects.iter().map(|it| it.partition);
        let committed = timeline.commits.iter().map(|it| it.partition);
        timeline.partitions = owned.chain(made).chain(committed).collect();
        timeline
    }

    fn read_effects(&mut self, evidence: &Evidence) {
        let column = ((evidence.ended - evidence.began) / COLUMNS).max(1);
        let mut columns = BTreeMap::<_, (i64, u32)>::new();
        for effect in &evidence.effects {
            let key = (effect.partition, &effect.worker, (effect.at - evidence.began) / column);
            columns.entry(key).or_insert((effect.at, 0)).1 += 1;
        }
        let effects = columns.into_iter().map(|((partition, owner, _), (at, count))| Effects {
            partition,
            owner: owner.clone(),
            at,
            count,
        });
        self.effects = effects.collect();
    }

    fn read_commits(&mut self, evidence: &Evidence) {
        let mut last = BTreeMap::new();
        for seen in &evidence.committed {
            let Some(offset) = seen.offset else { continue };
            let partition = seen.partition.partition;
            let before = last.insert(partition, offset);
            let back = before.is_some_and(|before| offset < before);
            self.commits.push(Commit { partition, at: seen.at, offset, back });
        }
    }

    fn read_violations(&mut self, evidence: &Evidence) {
        let violations = evidence.findings.iter().flat_map(|findings| &findings.violations);
        for violation in violations {
            let place = violation.place.as_ref();
            let (partition, offset) = place.map(|it| (it.partition.partition, it.offset)).unzip();
            // The last of them: the first one is the one that is right.
            let made = evidence.effects.iter().rev().find(|effect| {
                Some(effect.partition) == partition && Some(effect.offset) == offset
            });
            // Where there is no effect: when the offset was passed.
            let passed = evidence
                .committed
                .iter()
                .find(|seen| Some(seen.partition.partition) == partition && seen.offset > offset);
            let at = made.map(|effect| effect.at).or(passed.map(|seen| seen.at));
            self.violations.push(Found {
                kind: violation.kind.to_string(),
                partition,
                offset,
                at,
                detail: violation.detail.clone(),
            });
        }
    }
}

// ===== impl Reading =====

impl Reading<'_> {
    fn read(&mut self, event: &Logged) {
        let at = event.at;
        match event.message.as_str() {
            says::ASSIGNED => {
                let generation = event.number("generation");
                self.epoch = generation.unwrap_or(self.epoch);
            }
            says::STACK_STARTS => {
                for partition in self.named(event, "partition") {
                    self.close(partition, at, "replaced");
                    self.open.insert(partition, (at, self.epoch));
                }
            }
            says::REVOKED | "asked to end" => self.revoked = Some(at),
            says::DRAINED => self.drained(event, "finished"),
            says::DRAIN_GIVEN_UP => self.drained(event, "deadline"),
            says::GIVEN_BACK => {
                for partition in self.named(event, "partitions") {
                    self.close(partition, at, "given back");
                }
                self.revoked = None;
            }
            "the partition is stopped" => {
                for partition in self.named(event, "partition") {
                    self.close(partition, at, "stopped");
                }
            }
            says::LOST => self.close_all(at, "lost"),
            says::SUSPENDED => self.close_all(at, "suspended"),
            _ => {}
        }
    }

    fn drained(&mut self, event: &Logged, how: &'static str) {
        let from = self.revoked.unwrap_or(event.at);
        for partition in self.named(event, "partition") {
            let owner = self.member.name.clone();
            self.timeline.drains.push(Drain { partition, owner, from, to: event.at, how });
            self.close(partition, event.at, "drained");
        }
    }

    /// The partitions of the experiment's topic that a field names.
    fn named(&self, event: &Logged, field: &str) -> Vec<i32> {
        let names = event.text(field).unwrap_or_default().split(' ');
        let numbers = names.filter_map(|name| {
            let number = name.strip_prefix(self.topic)?.strip_prefix('-')?;
            number.parse().ok()
        });
        numbers.collect()
    }

    fn close(&mut self, partition: i32, to: i64, end: &'static str) {
        let Some((from, epoch)) = self.open.remove(&partition) else { return };
        let owner = self.member.name.clone();
        self.timeline.owners.push(Owned { partition, owner, epoch, from, to, end });
    }

    fn close_all(&mut self, to: i64, end: &'static str) {
        let open: Vec<_> = self.open.keys().copied().collect();
        open.into_iter().for_each(|partition| self.close(partition, to, end));
    }
}
