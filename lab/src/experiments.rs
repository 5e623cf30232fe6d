//! The experiments: what is done, what must have happened, and what must hold.

mod controls;
mod crash;
mod data;
mod handover;
mod rewind;

use std::pin::Pin;

use anyhow::Result;
use tidegate_oracle::ViolationKind;

use crate::{case::Case, worker::Protocol};

/// What the lab can do.
pub(crate) struct Experiment {
    /// `experiment/step`, as it is asked for with `--only`.
    pub(crate) name: &'static str,
    /// What happens, in a sentence.
    pub(crate) about: &'static str,
    pub(crate) expects: Expects,
    /// Whether the protocol makes a difference.
    pub(crate) protocols: &'static [Protocol],
    pub(crate) run: Run,
}

/// What an experiment is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expects {
    /// The promise is kept.
    Pass,
    /// A worker that is wrong on purpose is found out: the oracle has to say
    /// `FAIL`, and to name these violations.
    Violations(&'static [ViolationKind]),
}

// All of them run on one thread.
pub(crate) type Run = for<'a> fn(&'a Case) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

const ALL: &[Protocol] = &Protocol::ALL;
const ONE: &[Protocol] = &[Protocol::Consumer];

/// All of them.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "in-flight-handover/before-commit",
        about: "A member joins while a transaction is open behind its effect, past the drain's \
                deadline; the old work goes on after the handover.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(handover::before_commit(case)),
    },
    Experiment {
        name: "in-flight-handover/commit-sent",
        about: "A member joins while a COMMIT is on its way to the database, past the drain's \
                deadline; it arrives after the handover.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(handover::commit_sent(case)),
    },
    Experiment {
        name: "in-flight-handover/drained",
        about: "A member joins while a batch runs, which ends within the drain.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(handover::drained(case)),
    },
    Experiment {
        name: "crash-between-effect-and-commit/before-commit",
        about: "A member is killed behind the effect and before COMMIT.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(crash::before_commit(case)),
    },
    Experiment {
        name: "crash-between-effect-and-commit/after-commit",
        about: "A member is killed behind COMMIT and before the offset is committed.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(crash::after_commit(case)),
    },
    Experiment {
        name: "rewind-same-namespace",
        about: "The group's offsets are set back to the beginning, over the same database.",
        expects: Expects::Pass,
        protocols: ALL,
        run: |case| Box::pin(rewind::same_namespace(case)),
    },
    Experiment {
        name: "control-highest-offset",
        about: "A worker commits the highest offset that is finished, and is killed with a hole \
                below it.",
        expects: Expects::Violations(&[
            ViolationKind::CommittedPastUnfinished,
            ViolationKind::MissingEffect,
        ]),
        protocols: ONE,
        run: |case| Box::pin(controls::highest_offset(case)),
    },
    Experiment {
        name: "control-nothing-marked",
        about: "A worker's transactions mark nothing, and it is killed behind one.",
        expects: Expects::Violations(&[ViolationKind::SecondEffect]),
        protocols: ONE,
        run: |case| Box::pin(controls::nothing_marked(case)),
    },
];

impl Experiment {
    /// Whether it is asked for by a name: its own, or that of what it is a step
    /// of.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let (whole, _) = self.name.split_once('/').unwrap_or((self.name, ""));
        self.name == name || whole == name
    }
}
