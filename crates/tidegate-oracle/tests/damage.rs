//! Random logs and random runs: what is right is never blamed, and what is
//! damaged always is, by its name.

mod common;

use std::collections::BTreeMap;

use proptest::{
    prelude::{Just, ProptestConfig, Strategy, any, prop},
    prop_assert, prop_assert_eq, prop_oneof, proptest,
    sample::Index,
};
use tidegate_oracle::{
    Committed, Due, Effect, Evidence, Log, Plan, Rules, Verdict,
    ViolationKind::{self, *},
    judge,
};

use self::common::{Database, LIMIT, Owner, log, partition, record, transfer};

const PARTITIONS: i32 = 2;
const ACCOUNTS: usize = 5;

/// What a record is made from: an account, and what is done to it.
#[derive(Clone, Debug)]
enum Written {
    /// The next transfer of an account, moved forward by some records.
    Next { account: usize, late: usize, amount: i64 },
    /// A copy of an earlier record.
    Copy { of: Index },
    /// An earlier message with another amount.
    Conflict { of: Index },
    /// An earlier revision under another id.
    Rival { of: Index },
    /// No transfer.
    Garbage,
}

fn written() -> impl Strategy<Value = Written> {
    let account = 0..ACCOUNTS;
    // Some amounts are such that no database takes them.
    let amount = prop_oneof![20 => 1..LIMIT, 1 => Just(LIMIT)];
    let late = prop_oneof![3 => Just(0), 1 => 0_usize..8];
    prop_oneof![
        12 => (account, late, amount)
            .prop_map(|(account, late, amount)| Written::Next { account, late, amount }),
        2 => any::<Index>().prop_map(|of| Written::Copy { of }),
        1 => any::<Index>().prop_map(|of| Written::Conflict { of }),
        1 => any::<Index>().prop_map(|of| Written::Rival { of }),
        1 => Just(Written::Garbage),
    ]
}

#[derive(Clone, Debug)]
struct Transfer {
    id: u64,
    account: usize,
    revision: i64,
    amount: i64,
}

/// Writes a topic. An account's records are all in one partition.
fn write(written: &[Written]) -> Log {
    let mut revisions = [0; ACCOUNTS];
    let mut topic: Vec<Option<Transfer>> = Vec::new();
    // Where each is to be moved.
    let mut moves = Vec::new();
    for (id, written) in (0..).zip(written) {
        let earlier = |of: &Index| {
            let earlier: Vec<_> = topic.iter().flatten().collect();
            (!earlier.is_empty()).then(|| (*of.get(&earlier)).clone())
        };
        let transfer = match written {
            Written::Next { account, late, amount } => {
                revisions[*account] += 1;
                moves.push((topic.len(), *late));
                let revision = revisions[*account];
                Some(Transfer { id, account: *account, revision, amount: *amount })
            }
            Written::Copy { of } => earlier(of),
            Written::Conflict { of } => {
                earlier(of).map(|it| Transfer { amount: (it.amount + 1) % LIMIT, ..it })
            }
            Written::Rival { of } => earlier(of).map(|it| Transfer { id, ..it }),
            Written::Garbage => None,
        };
        topic.push(transfer);
    }
    for (from, late) in moves.into_iter().rev() {
        let to = (from + late).min(topic.len() - 1);
        topic[from..=to].rotate_left(1);
    }
    let mut ends = [0; PARTITIONS as usize];
    let records = topic.iter().map(|transfer| {
        let account = transfer.as_ref().map_or(0, |it| it.account);
        let number = account % PARTITIONS as usize;
        let offset = ends[number];
        // Logs have gaps.
        ends[number] += 1 + offset % 2;
        let payload = transfer.as_ref().map_or_else(
            || "no transfer".to_owned(),
            |it| self::transfer(it.id, &it.account.to_string(), it.revision, it.amount),
        );
        record(number as i32, offset, &account.to_string(), &payload)
    });
    log(records.collect::<Vec<_>>())
}

/// What a group does, step by step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The owner of a partition takes its next records.
    Work { partition: i32, records: usize },
    /// It commits what it has done.
    Commit { partition: i32 },
    /// The partition goes to another owner, who begins at the committed offset.
    Handover { partition: i32 },
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        4 => (partition.clone(), 1_usize..6)
            .prop_map(|(partition, records)| Step::Work { partition, records }),
        2 => partition.clone().prop_map(|partition| Step::Commit { partition }),
        1 => partition.prop_map(|partition| Step::Handover { partition }),
    ]
}

#[derive(Default)]
struct Group {
    database: Database,
    seen: Vec<Committed>,
    // The next record, the committed one, and the epoch of each partition.
    next: BTreeMap<i32, usize>,
    committed: BTreeMap<i32, usize>,
    epochs: BTreeMap<i32, i64>,
}

impl Group {
    fn step(&mut self, log: &Log, step: Step, skip: Option<usize>) {
        match step {
            Step::Work { partition, records } => {
                let epoch = *self.epochs.entry(partition).or_insert(1);
                let owner = Owner { worker: format!("worker-{epoch}"), epoch };
                let next = self.next.entry(partition).or_default();
                for (index, input) in of(log, partition).skip(*next).take(records) {
                    *next += 1;
                    if Some(index) != skip {
                        self.database.consume(&input.record, &owner);
                    }
                }
            }
            Step::Commit { partition } => {
                let next = self.next.get(&partition).copied().unwrap_or_default();
                self.committed.insert(partition, next);
                let end = log.bounds().get(&self::partition(partition)).map_or(0, |it| it.end);
                let next = of(log, partition).nth(next);
                let offset = next.map_or(end, |(_, input)| input.record.place.offset);
                self.seen.push(common::committed(partition, offset));
            }
            Step::Handover { partition } => {
                *self.epochs.entry(partition).or_insert(1) += 1;
                let committed = self.committed.get(&partition).copied().unwrap_or_default();
                self.next.insert(partition, committed);
            }
        }
    }

    fn finish(&mut self, log: &Log, skip: Option<usize>) {
        for partition in 0..PARTITIONS {
            self.step(log, Step::Work { partition, records: usize::MAX }, skip);
            self.step(log, Step::Commit { partition }, skip);
        }
    }
}

fn of(log: &Log, number: i32) -> impl Iterator<Item = (usize, &tidegate_oracle::Input)> {
    let partition = partition(number);
    let inputs = log.inputs().iter().enumerate();
    inputs.filter(move |(_, input)| input.record.place.partition == partition)
}

fn run(log: &Log, steps: &[Step], finish: bool, skip: Option<usize>) -> Evidence {
    let mut group = Group::default();
    for step in steps {
        group.step(log, *step, skip);
    }
    if finish {
        group.finish(log, skip);
    }
    group.database.evidence(log.clone(), group.seen)
}

/// What is done to the evidence, and how that is called.
#[derive(Clone, Copy, Debug)]
enum Damage {
    LoseEffect,
    RepeatEffect,
    ChangeAmount,
    SwapEffects,
    InventEffect,
    LoseMarker,
    LoseLetter,
    BuryApplied,
    LoseParked,
    KeepParked,
    MovePosition,
    CommitBack,
    CommitBeyond,
    CommitLess,
    ActLate,
    ChangeBalance,
}

fn damage() -> impl Strategy<Value = Damage> {
    use Damage::*;
    prop::sample::select(vec![
        LoseEffect,
        RepeatEffect,
        ChangeAmount,
        SwapEffects,
        InventEffect,
        LoseMarker,
        LoseLetter,
        BuryApplied,
        LoseParked,
        KeepParked,
        MovePosition,
        CommitBack,
        CommitBeyond,
        CommitLess,
        ActLate,
        ChangeBalance,
    ])
}

/// Does the damage, if there is something to be damaged.
fn inflict(evidence: &mut Evidence, damage: Damage, at: Index) -> Option<ViolationKind> {
    let effects = evidence.effects.as_mut()?;
    let letters = evidence.buried.as_mut()?;
    let parked = evidence.parked.as_mut()?;
    let seen = evidence.committed.as_mut()?;
    let markers = evidence.markers.as_mut()?;
    let positions = evidence.positions.as_mut()?;
    let balances = evidence.balances.as_mut()?;
    let pick = |len: usize| (len > 0).then(|| at.index(len.max(1)));
    match damage {
        Damage::LoseEffect => {
            effects.remove(pick(effects.len())?);
            Some(MissingEffect)
        }
        Damage::RepeatEffect => {
            let again = effects[pick(effects.len())?].clone();
            effects.push(Effect { seq: 10_000, ..again });
            Some(SecondEffect)
        }
        Damage::ChangeAmount => {
            let index = pick(effects.len())?;
            effects[index].amount = LIMIT + 1;
            Some(WrongEffect)
        }
        Damage::SwapEffects => {
            let later: Vec<_> = (0..effects.len()).filter(|&it| effects[it].revision > 1).collect();
            let later = later[pick(later.len())?];
            let before = effects[later].revision - 1;
            let same = |it: &Effect| it.entity == effects[later].entity && it.revision == before;
            let earlier = effects.iter().position(same)?;
            let seq = effects[later].seq;
            effects[later].seq = effects[earlier].seq;
            effects[earlier].seq = seq;
            Some(OutOfOrder)
        }
        Damage::InventEffect => {
            let mut effect = effects[pick(effects.len())?].clone();
            effect.id.0 = u128::MAX;
            effects.push(effect);
            Some(UnexpectedEffect)
        }
        Damage::LoseMarker => {
            let id = effects[pick(effects.len())?].id;
            markers.retain(|marker| marker.id != id);
            Some(EffectWithoutMarker)
        }
        Damage::LoseLetter => {
            letters.remove(pick(letters.len())?);
            Some(NotBuried)
        }
        Damage::BuryApplied => {
            letters.push(effects[pick(effects.len())?].place.clone());
            Some(WronglyBuried)
        }
        Damage::LoseParked => {
            parked.remove(pick(parked.len())?);
            Some(NotParked)
        }
        Damage::KeepParked => {
            let Effect { entity, revision, place, .. } = effects[pick(effects.len())?].clone();
            let kept = tidegate_oracle::Parked { entity, revision, place, withheld: false };
            parked.push(kept);
            Some(NeverReleased)
        }
        Damage::MovePosition => {
            let index = pick(positions.len())?;
            positions[index].revision += 1;
            Some(WrongPosition)
        }
        Damage::CommitBack => {
            let mut back = seen[pick(seen.len())?].clone();
            let offset = back.offset.filter(|offset| *offset > 0)?;
            back.offset = Some(offset - 1);
            seen.insert(seen.iter().rposition(|it| it.offset == Some(offset))? + 1, back);
            Some(CommittedWentBack)
        }
        Damage::CommitBeyond => {
            let last = seen.last_mut()?;
            last.offset = Some(1_000_000);
            Some(CommittedOutsideLog)
        }
        Damage::CommitLess => {
            let partition = seen.last()?.partition.clone();
            let end = seen.last()?.offset.filter(|end| *end > 0)?;
            seen.retain(|it| it.partition != partition);
            seen.push(Committed { partition, offset: Some(end - 1), at: 0, era: 0 });
            Some(NotConsumed)
        }
        Damage::ActLate => {
            let index = pick(effects.len())?;
            let partition = effects[index].place.partition.clone();
            let mut later = effects[index + 1..].iter_mut();
            later.find(|it| it.place.partition == partition)?.epoch = 0;
            Some(StaleOwner)
        }
        Damage::ChangeBalance => {
            let index = pick(balances.len())?;
            balances[index].amount += 1;
            Some(WrongBalance)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_right_run_is_never_blamed(
        written in prop::collection::vec(written(), 1..60),
        steps in prop::collection::vec(step(), 0..40),
        finish in any::<bool>(),
    ) {
        let log = write(&written);
        let mut evidence = run(&log, &steps, finish, None);
        let rules = Rules::default().guarded();
        let rules = if finish { rules } else { rules.unfinished() };
        let findings = judge(&evidence, rules);
        prop_assert_eq!(findings.verdict, Verdict::Pass, "{}", findings);
        prop_assert_eq!(findings.counts.committed_went_back, 0);
        // Less is promised where the whole promise is kept.
        evidence.markers = None;
        let findings = judge(&evidence, rules.without_inbox());
        prop_assert!(findings.count(OutOfOrder) + findings.count(SecondEffect) == 0, "{}", findings);
    }

    #[test]
    fn damage_is_called_by_its_name(
        written in prop::collection::vec(written(), 10..60),
        steps in prop::collection::vec(step(), 0..40),
        damage in damage(),
        at in any::<Index>(),
    ) {
        let log = write(&written);
        let mut evidence = run(&log, &steps, true, None);
        if let Some(kind) = inflict(&mut evidence, damage, at) {
            let findings = judge(&evidence, Rules::default().guarded());
            prop_assert_eq!(findings.verdict, Verdict::Fail);
            prop_assert!(findings.count(kind) > 0, "{:?}: {}", damage, findings);
        }
    }

    // The fault of a group that commits the highest finished offset.
    #[test]
    fn a_record_that_was_passed_over_is_found(
        written in prop::collection::vec(written(), 1..60),
        steps in prop::collection::vec(step(), 0..40),
        at in any::<Index>(),
    ) {
        let log = write(&written);
        let skipped = at.index(log.inputs().len());
        let findings = judge(&run(&log, &steps, true, Some(skipped)), Rules::default());
        let kind = match Plan::of(&log, Rules::default()).due(skipped) {
            Some(Due::Applied) => MissingEffect,
            Some(Due::Parked | Due::Withheld) => NotParked,
            Some(Due::Buried) => NotBuried,
            // Nothing is lost with what repeats, or is over.
            _ => return Ok(()),
        };
        // A copy that comes later stands in for it.
        let copies = log.inputs().iter().filter(|it| it.message() == log.inputs()[skipped].message());
        if log.inputs()[skipped].message().is_none() || copies.count() == 1 {
            prop_assert!(findings.count(kind) > 0, "{}", findings);
            prop_assert!(findings.count(CommittedPastUnfinished) > 0, "{}", findings);
        }
    }
}
