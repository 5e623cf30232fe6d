use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Place;

/// What an oracle found, and what follows from it.
///
/// Everything in it is data, so that it can be written to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Findings {
    /// What follows from the numbers.
    pub verdict: Verdict,
    /// Why it is not [`Verdict::Pass`].
    pub reasons: Vec<String>,
    /// What was counted.
    pub counts: Counts,
    /// How many violations there are of each kind.
    pub found: BTreeMap<ViolationKind, u64>,
    /// The violations, the first [`Findings::SHOWN`] of each kind.
    pub violations: Vec<Violation>,
}

/// The result of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// There was something to judge, and nothing disagrees with the promise.
    Pass,
    /// Something does.
    Fail,
    /// There was nothing to judge, or something was not read.
    NotRun,
}

/// What was counted on the way to a verdict. None of it decides anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Counts {
    /// Records in the topic.
    pub records: u64,
    /// Messages in the topic, each counted once.
    pub messages: u64,
    /// Effects that are due if the topic is read to its end.
    pub due: u64,
    /// Records that only repeat a message.
    pub duplicates: u64,
    /// Records whose revision was over when they came.
    pub stale: u64,
    /// Records that contradict an earlier one: same message, other payload, or
    /// same revision, other message.
    pub conflicts: u64,
    /// Records that cannot be decoded, or that no database takes.
    pub poison: u64,
    /// Effects in the table.
    pub effects: u64,
    /// Markers in the table.
    pub markers: u64,
    /// Deltas that are parked.
    pub parked: u64,
    /// Deltas that are parked and withheld.
    pub withheld: u64,
    /// Dead letters.
    pub buried: u64,
    /// Records that lie above the committed offsets.
    pub unread: u64,
    /// Committed offsets that were seen, each counted when it changed.
    pub committed_seen: u64,
    /// Times at which a committed offset had gone back.
    pub committed_went_back: u64,
    /// Effects of an owner that came after the first one of a later owner.
    pub by_stale_owners: u64,
    /// Changes of owner, over all partitions.
    pub handovers: u64,
}

/// Something that does not agree with the promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Violation {
    /// Of which kind.
    pub kind: ViolationKind,
    /// Where, if it is about one record or partition.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What exactly.
    pub detail: String,
}

/// How a promise can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ViolationKind {
    /// A message has no effect, although one is due.
    MissingEffect,
    /// A message has more than one effect.
    SecondEffect,
    /// An effect is not what its message asks for.
    WrongEffect,
    /// An effect is of no message, or of one that can have none.
    UnexpectedEffect,
    /// An effect is of a record that contradicts an earlier one.
    ConflictApplied,
    /// An entity's effects are not in its order.
    OutOfOrder,
    /// An entity's sum is not the sum of its effects.
    WrongBalance,
    /// A committed offset is above a record that has no durable outcome.
    CommittedPastUnfinished,
    /// A committed offset went back.
    CommittedWentBack,
    /// A committed offset is not in the log.
    CommittedOutsideLog,
    /// A committed offset is not at the end of the log.
    NotConsumed,
    /// A message is marked and has no outcome.
    MarkerWithoutEffect,
    /// A message has an outcome and is not marked.
    EffectWithoutMarker,
    /// A sequencer's position is not the entity's last revision.
    WrongPosition,
    /// An early delta was passed over and is not parked.
    NotParked,
    /// A parked delta could go on, and does not.
    NeverReleased,
    /// A record that cannot succeed was passed over and is no dead letter.
    NotBuried,
    /// A record that could succeed is a dead letter.
    WronglyBuried,
    /// A stale owner made an effect after the first one of a later owner.
    StaleOwner,
}

// ===== impl Findings =====

impl Findings {
    /// How many violations of one kind are kept.
    pub const SHOWN: usize = 100;

    pub(crate) fn new(counts: Counts, violations: Vec<Violation>) -> Self {
        let mut found = BTreeMap::<_, u64>::new();
        let mut shown = Vec::new();
        for violation in violations {
            let count = found.entry(violation.kind).or_default();
            if *count < Self::SHOWN as u64 {
                shown.push(violation);
            }
            *count += 1;
        }
        let reasons: Vec<_> =
            found.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
        let verdict = if reasons.is_empty() { Verdict::Pass } else { Verdict::Fail };
        Self { verdict, reasons, counts, found, violations: shown }
    }

    /// Nothing was judged, and why.
    pub fn not_run(reasons: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            verdict: Verdict::NotRun,
            reasons: reasons.into_iter().map(Into::into).collect(),
            counts: Counts::default(),
            found: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// How many violations of a kind there are.
    #[must_use]
    pub fn count(&self, kind: ViolationKind) -> u64 {
        self.found.get(&kind).copied().unwrap_or_default()
    }
}

impl fmt::Display for Findings {
    /// The verdict with its reasons, and the first violations, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if !self.reasons.is_empty() {
            write!(f, " ({})", self.reasons.join(", "))?;
        }
        self.violations.iter().take(20).try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

// ===== impl Verdict =====

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NotRun => "NOT_RUN",
        })
    }
}

// ===== impl Violation =====

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

// ===== impl ViolationKind =====

impl ViolationKind {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::MissingEffect,
        Self::SecondEffect,
        Self::WrongEffect,
        Self::UnexpectedEffect,
        Self::ConflictApplied,
        Self::OutOfOrder,
        Self::WrongBalance,
        Self::CommittedPastUnfinished,
        Self::CommittedWentBack,
        Self::CommittedOutsideLog,
        Self::NotConsumed,
        Self::MarkerWithoutEffect,
        Self::EffectWithoutMarker,
        Self::WrongPosition,
        Self::NotParked,
        Self::NeverReleased,
        Self::NotBuried,
        Self::WronglyBuried,
        Self::StaleOwner,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingEffect => "missing-effect",
            Self::SecondEffect => "second-effect",
            Self::WrongEffect => "wrong-effect",
            Self::UnexpectedEffect => "unexpected-effect",
            Self::ConflictApplied => "conflict-applied",
            Self::OutOfOrder => "out-of-order",
            Self::WrongBalance => "wrong-balance",
            Self::CommittedPastUnfinished => "committed-past-unfinished",
            Self::CommittedWentBack => "committed-went-back",
            Self::CommittedOutsideLog => "committed-outside-log",
            Self::NotConsumed => "not-consumed",
            Self::MarkerWithoutEffect => "marker-without-effect",
            Self::EffectWithoutMarker => "effect-without-marker",
            Self::WrongPosition => "wrong-position",
            Self::NotParked => "not-parked",
            Self::NeverReleased => "never-released",
            Self::NotBuried => "not-buried",
            Self::WronglyBuried => "wrongly-buried",
            Self::StaleOwner => "stale-owner",
        }
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
