mod books;
mod effects;
mod offsets;
mod outcomes;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::offsets::Offsets;
use crate::{
    Counts, Due, Effect, Evidence, Findings, Input, MessageId, Parked, Partition, Place, Plan,
    Rules, Violation, ViolationKind,
};

/// Compares what there is with what was promised.
///
/// The workers must be at rest: what is being written while it is read looks
/// like a violation.
#[must_use]
pub fn judge(evidence: &Evidence, rules: Rules) -> Findings {
    let missing = missing(evidence, rules);
    if !missing.is_empty() {
        return Findings::not_run(missing);
    }
    let mut case = Case::new(evidence, rules);
    case.effects();
    case.order();
    case.stale_owners();
    case.balances();
    case.markers();
    case.positions();
    case.parked();
    case.offsets();
    case.outcomes();
    case.wrongly_buried();
    Findings::new(case.counts(), case.violations)
}

/// What a verdict would need and does not have.
fn missing(evidence: &Evidence, rules: Rules) -> Vec<String> {
    let needs = [
        (evidence.log.inputs().is_empty(), "the topic has no records"),
        (evidence.committed.is_none(), "the committed offsets were not read"),
        (evidence.effects.is_none(), "the effects were not read"),
        (rules.inbox && evidence.markers.is_none(), "the markers were not read"),
        (
            rules.sequencer && evidence.positions.is_none(),
            "the positions of entities were not read",
        ),
        (rules.sequencer && evidence.parked.is_none(), "the parked deltas were not read"),
        (rules.dead_letters && evidence.buried.is_none(), "the dead letters were not read"),
    ];
    let lacks = needs.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| what.to_owned());
    let lost = evidence.log.lost().map(|(partition, start)| {
        format!("the records of {partition} below {start} are gone, and were not read before")
    });
    lacks.chain(lost).collect()
}

/// The evidence, as it is looked up.
struct Case<'a> {
    evidence: &'a Evidence,
    rules: Rules,
    inputs: &'a [Input],
    // What becomes of each record, if all are read.
    plan: Plan,
    // In the order in which they were made.
    effects: Vec<&'a Effect>,
    by_message: HashMap<MessageId, Vec<&'a Effect>>,
    // The records of each message, in the order of the log.
    records: HashMap<MessageId, Vec<usize>>,
    // The last revision of each entity that has an effect.
    revisions: HashMap<&'a str, i64>,
    parked: HashMap<(&'a str, i64), &'a Parked>,
    buried: HashSet<&'a Place>,
    offsets: BTreeMap<&'a Partition, Offsets>,
    violations: Vec<Violation>,
    by_stale_owners: u64,
    handovers: u64,
    went_back: u64,
}

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence, rules: Rules) -> Self {
        let inputs = evidence.log.inputs();
        let mut effects: Vec<_> = evidence.effects.iter().flatten().collect();
        effects.sort_by_key(|effect| effect.seq);
        let mut by_message = HashMap::<_, Vec<_>>::new();
        let mut revisions = HashMap::new();
        for &effect in &effects {
            by_message.entry(effect.id).or_default().push(effect);
            let last = revisions.entry(effect.entity.as_str()).or_insert(effect.revision);
            *last = effect.revision.max(*last);
        }
        let mut records = HashMap::<_, Vec<_>>::new();
        for (index, message) in inputs.iter().map(Input::message).enumerate() {
            if let Some(message) = message {
                records.entry(message.id).or_default().push(index);
            }
        }
        let parked = evidence.parked.iter().flatten();
        Self {
            plan: Plan::of(&evidence.log, rules),
            parked: parked.map(|it| ((it.entity.as_str(), it.revision), it)).collect(),
            buried: evidence.buried.iter().flatten().collect(),
            offsets: offsets::of(evidence),
            violations: Vec::new(),
            by_stale_owners: 0,
            handovers: 0,
            went_back: 0,
            evidence,
            rules,
            inputs,
            effects,
            by_message,
            records,
            revisions,
        }
    }

    fn violated(&mut self, kind: ViolationKind, place: Option<&Place>, detail: String) {
        self.violations.push(Violation { kind, place: place.cloned(), detail });
    }

    /// Whether an effect is the one that a record asks for.
    fn is_of(&self, effect: &Effect, index: usize) -> bool {
        self.inputs[index].message().is_some_and(|message| {
            message.id == effect.id
                && message.entity == effect.entity
                && message.revision == effect.revision
                && message.amount == effect.amount
        })
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            records: self.inputs.len() as u64,
            messages: self.records.len() as u64,
            effects: self.effects.len() as u64,
            markers: self.evidence.markers.as_ref().map_or(0, Vec::len) as u64,
            parked: self.parked.len() as u64,
            withheld: self.parked.values().filter(|it| it.withheld).count() as u64,
            buried: self.buried.len() as u64,
            committed_seen: self.evidence.committed.as_ref().map_or(0, Vec::len) as u64,
            committed_went_back: self.went_back,
            by_stale_owners: self.by_stale_owners,
            handovers: self.handovers,
            ..Counts::default()
        };
        for (index, input) in self.inputs.iter().enumerate() {
            let Place { partition, offset } = &input.record.place;
            let committed = self.offsets.get(partition).and_then(|it| it.last);
            counts.unread += u64::from(committed.is_none_or(|committed| *offset >= committed));
            let poison = input.message().is_none_or(|message| !message.appliable);
            counts.poison += u64::from(poison);
            match self.plan.due(index) {
                Some(Due::Applied) => counts.due += 1,
                Some(Due::Duplicate) => counts.duplicates += 1,
                Some(Due::Stale) => counts.stale += 1,
                Some(Due::Buried) if !poison => counts.conflicts += 1,
                Some(Due::Buried | Due::Parked | Due::Withheld) | None => {}
            }
        }
        counts
    }
}
