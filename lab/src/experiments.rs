//! The experiments: what is done, what must have happened, and what must hold.

mod broker_network;
mod chaos;
mod client_traps;
mod commit_refused;
mod common;
mod conflict;
mod controls;
mod crash;
mod crash_points;
mod data;
mod database_network;
mod handlers;
mod handover;
mod members;
mod revisions;
mod rewind;
mod shutdown;
mod start_positions;
mod steps_back;
mod zombie;

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
    /// Those where it makes a difference.
    pub(crate) protocols: &'static [Protocol],
    /// Whether it makes worse what others need.
    pub(crate) alone: bool,
    /// How many nodes its Kafka has.
    pub(crate) nodes: usize,
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

/// All of them, by what they are about.
const ALL: &[&[Experiment]] = &[
    handover::ALL,
    crash::ALL,
    crash_points::ALL,
    rewind::ALL,
    zombie::ALL,
    commit_refused::ALL,
    broker_network::ALL,
    database_network::ALL,
    handlers::ALL,
    conflict::ALL,
    revisions::ALL,
    members::ALL,
    shutdown::ALL,
    start_positions::ALL,
    client_traps::ALL,
    controls::ALL,
    chaos::ALL,
];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    ALL.iter().copied().flatten()
}

impl Experiment {
    const fn new(name: &'static str, about: &'static str, run: Run) -> Self {
        let (expects, protocols) = (Expects::Pass, Protocol::ALL.as_slice());
        Self { name, about, expects, protocols, alone: false, nodes: 1, run }
    }

    /// Where only these protocols make a difference.
    const fn on(self, protocols: &'static [Protocol]) -> Self {
        Self { protocols, ..self }
    }

    /// It needs the services for itself.
    const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// It needs a Kafka of three nodes.
    const fn on_three_nodes(self) -> Self {
        Self { nodes: 3, ..self }
    }

    /// A control: these violations have to be found.
    const fn finds(self, violations: &'static [ViolationKind]) -> Self {
        Self { expects: Expects::Violations(violations), ..self }
    }

    /// Whether it is asked for by a name: its own, or that of what it is a step
    /// of.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let (whole, _) = self.name.split_once('/').unwrap_or((self.name, ""));
        self.name == name || whole == name
    }
}

#[cfg(test)]
mod tests {
    use tidegate_oracle::ViolationKind;

    use super::{Expects, all};
    use crate::crate_tests;

    #[test]
    fn each_kind_of_violation_has_a_control() {
        for kind in ViolationKind::ALL {
            let finds = |expects| match expects {
                Expects::Pass => false,
                Expects::Violations(kinds) => kinds.contains(&kind),
            };
            assert!(all().any(|it| finds(it.expects)), "no control finds {kind}");
        }
    }

    /// In the last column: an experiment, a step of the one before it as `/step`, the
    /// tests of a crate, or a test program.
    #[test]
    fn what_the_readme_says_is_tried_is_there() {
        let map = include_str!("../README.md").split("# What is tried where").nth(1).unwrap();
        let rows = map.lines().filter(|line| line.starts_with("| ")).skip(2);
        let mut whole = String::new();
        for row in rows {
            let place = row.trim_end_matches('|').rsplit('|').next().unwrap();
            for name in place.split('`').skip(1).step_by(2) {
                let name = match name.strip_prefix('/') {
                    Some(step) => format!("{whole}/{step}"),
                    None => name.to_owned(),
                };
                let is_there = all().any(|it| it.is_called(&name))
                    || name.starts_with("tidegate-")
                    || name.starts_with("cargo xtask bench")
                    || crate_tests::PROGRAMS.contains(&name.as_str());
                assert!(is_there, "there is no `{name}`: {row}");
                whole = name.split('/').next().unwrap().to_owned();
            }
        }
    }
}
