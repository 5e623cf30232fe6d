//! What an experiment leaves behind: one file of JSON.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use tidegate_oracle::{Committed, Findings, Verdict};
use xtask::services::{Origin, Versions};

use crate::{
    database::EffectAt,
    member::Counters,
    worker::{Arguments, Logged, Protocol, now},
};

/// Everything that is known of one run of one experiment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Evidence {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) protocol: Protocol,
    pub(crate) seed: u64,
    pub(crate) scale: Scale,
    /// What serves, if anything does.
    pub(crate) origins: Option<Origins>,
    pub(crate) verdict: Verdict,
    /// Why, if it is no pass; what the oracle has found, if it is a control.
    pub(crate) reasons: Vec<String>,
    pub(crate) versions: Versions,
    /// In milliseconds since the Unix epoch.
    pub(crate) began: i64,
    pub(crate) ended: i64,
    pub(crate) topic: String,
    pub(crate) group: String,
    /// What the lab did, in order.
    pub(crate) steps: Vec<Step>,
    pub(crate) members: Vec<MemberEvidence>,
    /// What the experiment itself counted.
    pub(crate) counts: BTreeMap<String, i64>,
    /// What the oracle found.
    pub(crate) findings: Option<Findings>,
    pub(crate) committed: Vec<Committed>,
    pub(crate) effects: Vec<EffectAt>,
}

/// How much of everything was asked for.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Scale {
    /// As little as will do.
    pub(crate) quick: bool,
    /// How often a process dies at each point.
    pub(crate) rounds: u32,
    /// How long chaos lasts.
    pub(crate) chaos: Duration,
}

/// Where the services came from.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Origins {
    pub(crate) kafka: Origin,
    pub(crate) postgresql: Origin,
}

/// Something that the lab did, or saw.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    /// When it had taken effect, in milliseconds since the Unix epoch.
    pub(crate) at: i64,
    pub(crate) kind: StepKind,
    pub(crate) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StepKind {
    /// A part of the experiment begins.
    Phase,
    /// A fault has taken effect.
    Fault,
    /// What was made worse is as it was.
    Relief,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemberEvidence {
    pub(crate) name: String,
    pub(crate) process: u32,
    pub(crate) arguments: Arguments,
    /// How it ended, in words.
    pub(crate) end: Option<String>,
    /// When, in milliseconds since the Unix epoch.
    pub(crate) ended: Option<i64>,
    pub(crate) counters: Counters,
    /// Assignments, revokes, losses, drains, commits and whatever else it says.
    pub(crate) events: Vec<Logged>,
}

// ===== impl Step =====

impl Step {
    pub(crate) fn new(kind: StepKind, what: impl Into<String>) -> Self {
        Self { at: now(), kind, what: what.into() }
    }
}

// ===== impl Evidence =====

impl Evidence {
    /// What is known before anything has happened.
    pub(crate) fn new(name: &str, protocol: Protocol, versions: &Versions) -> Self {
        Self {
            name: name.to_owned(),
            about: String::new(),
            protocol,
            seed: 0,
            scale: Scale::default(),
            origins: None,
            verdict: Verdict::NotRun,
            reasons: Vec::new(),
            versions: versions.clone(),
            began: now(),
            ended: 0,
            topic: String::new(),
            group: String::new(),
            steps: Vec::new(),
            members: Vec::new(),
            counts: BTreeMap::new(),
            findings: None,
            committed: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// What was counted, in a line.
    pub(crate) fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(Findings { counts, found, .. }) = &self.findings {
            let named = [
                ("records", counts.records),
                ("due", counts.due),
                ("effects", counts.effects),
                ("markers", counts.markers),
                ("parked", counts.parked),
                ("buried", counts.buried),
                ("handovers", counts.handovers),
            ];
            parts.extend(named.map(|(name, count)| format!("{name} {count}")));
            parts.extend(found.iter().map(|(kind, count)| format!("{kind} {count}")));
        }
        parts.extend(self.counts.iter().map(|(name, count)| format!("{name} {count}")));
        parts.join(", ")
    }

    /// The name of its file, without an ending.
    pub(crate) fn file_stem(&self) -> String {
        let name = self.name.replace('/', ".");
        format!("{name}.{}", self.protocol)
    }
}
