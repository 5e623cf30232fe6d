//! A run: the experiments, side by side, and what they add up to.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tidegate_oracle::{Findings, Verdict};
use tokio::{
    select,
    time::{sleep, timeout},
};
use xtask::services::{Farewell, Missing, Origin, Run, Versions, is_interrupted};

use crate::{
    case::{Case, Terms},
    cli::{Arguments, Ended},
    crate_tests,
    evidence::{Evidence, Scale},
    experiments::{self, Expects, Experiment},
    progress::Progress,
    report,
    services::{self, Lacking, Services},
    worker::{Protocol, now},
};

/// How many experiments run side by side. Most of them wait most of the time.
const SIDE_BY_SIDE: usize = 4;

/// How long an experiment that is interrupted may take to remove what it made.
const FAREWELL: Duration = Duration::from_secs(50);

/// One experiment, as it is to be run.
#[derive(Clone, Copy)]
struct Planned {
    experiment: &'static Experiment,
    protocol: Protocol,
    number: usize,
}

/// What all of them have in common.
struct Lab {
    services: Arc<Services>,
    directory: PathBuf,
    id: String,
    keep: bool,
    seed: u64,
    scale: Scale,
    progress: Progress,
}

/// Runs what the command line asks for.
pub(crate) async fn run(arguments: Arguments, progress: Progress) -> Result<Ended> {
    // What was made is removed, and what was seen is written.
    let _farewell = Farewell::begin();
    let planned = plan(&arguments);
    let with_tests = arguments.asks_for(|name| name == crate_tests::NAME);
    let began = now();
    let id = format!("{began:x}");
    let directory = match &arguments.report {
        Some(directory) => directory.clone(),
        None => arguments.target.join("integration").join(&id),
    };
    tokio::fs::create_dir_all(&directory).await?;
    let services = Run::begin(&arguments.target.join("services"), "integration")?;
    let started = {
        let _line = progress.line("services");
        Services::start(services, arguments.sources.clone()).await
    };
    let lab = match started {
        Ok(services) => Lab {
            services: Arc::new(services),
            directory,
            id,
            keep: arguments.keep,
            seed: arguments.seed,
            scale: arguments.scale(),
            progress: progress.clone(),
        },
        Err(error) if error.is::<Missing>() || is_interrupted() => {
            // It may have failed by it.
            let error = if is_interrupted() { interrupted() } else { error };
            progress.say(format_args!("NOT_RUN  everything: {error}"));
            let versions = services::unavailable();
            let mut evidence = Vec::new();
            if with_tests {
                evidence.push(crate_tests::not_run(&versions, &error));
            }
            let not_run = planned.iter().map(|it| it.not_run(&arguments, &versions, &error));
            evidence.extend(not_run);
            for it in &evidence {
                report::write_one(&directory, it).await?;
            }
            let path = report::write(&directory, &id, &evidence).await?;
            progress.say(report::table(&evidence));
            progress.say(format_args!("report: {}", path.display()));
            return Ok(Ended::NotRun);
        }
        Err(error) => return Err(error),
    };
    let mut evidence = Vec::new();
    if with_tests {
        let tests = crate_tests::run(&lab.services, &lab.directory, &progress).await;
        evidence.push(lab.report(tests).await?);
    }
    let mut ended_ones = Vec::new();
    let (alone, together): (Vec<_>, Vec<_>) =
        planned.into_iter().partition(|planned| planned.experiment.alone);
    for (planned, at_once) in [(together, SIDE_BY_SIDE), (alone, 1)] {
        let running = stream::iter(planned).map(|planned| lab.run(planned));
        let mut running = running.buffer_unordered(at_once);
        while let Some(ended) = running.next().await {
            ended_ones.push(ended?);
        }
    }
    // As they are listed, and not as they ended.
    ended_ones.sort_by_key(|(number, _)| *number);
    evidence.extend(ended_ones.into_iter().map(|(_, evidence)| evidence));
    let path = report::write(&lab.directory, &lab.id, &evidence).await?;
    progress.say(report::table(&evidence));
    progress.say(format_args!("report: {}", path.display()));
    if arguments.keep {
        lab.services.keep()?;
        progress.say(format_args!("kept are topics, groups and schemas with `{}`, and", lab.id));
        for (name, value) in lab.services.addresses() {
            progress.say(format_args!("export {name}='{value}'"));
        }
        progress.say("what was started is ended by `cargo xtask down`");
    }
    Ok(Ended::of(&evidence))
}

/// The experiments that are asked for.
fn plan(arguments: &Arguments) -> Vec<Planned> {
    let Arguments { protocol, quick, seed, .. } = arguments;
    let mut planned = Vec::new();
    let asked = |it: &Experiment| arguments.asks_for(|name| it.is_called(name));
    for (number, experiment) in experiments::all().enumerate().filter(|(_, it)| asked(it)) {
        let all = experiment.protocols;
        let chosen = usize::try_from(*seed).unwrap_or_default().wrapping_add(number) % all.len();
        let is_wanted = |it: &(usize, &Protocol)| match protocol {
            // Where the protocol makes no difference, one is as good.
            Some(protocol) => it.1 == protocol || all.len() == 1,
            None => !quick || it.0 == chosen,
        };
        for (_, &protocol) in all.iter().enumerate().filter(is_wanted) {
            planned.push(Planned { experiment, protocol, number: planned.len() });
        }
    }
    planned
}

// ===== impl Planned =====

impl Planned {
    /// What is known of it when there is nothing to run it on.
    fn not_run(
        &self,
        arguments: &Arguments,
        versions: &Versions,
        error: &anyhow::Error,
    ) -> Evidence {
        let mut evidence = Evidence::new(self.experiment.name, self.protocol, versions);
        evidence.about = self.experiment.about.to_owned();
        (evidence.seed, evidence.scale) = (arguments.seed, arguments.scale());
        evidence.reasons.push(format!("{error:#}"));
        evidence.ended = evidence.began;
        evidence
    }
}

// ===== impl Lab =====

impl Lab {
    async fn run(&self, planned: Planned) -> Result<(usize, Evidence)> {
        let Planned { experiment, protocol, number } = planned;
        let label = format!("{}, {protocol}", experiment.name);
        let name = experiment.name.replace('/', "-");
        let id = format!("lab-{}-{name}-{protocol}", self.id);
        let mut evidence = Evidence::new(experiment.name, protocol, self.services.versions());
        evidence.about = experiment.about.to_owned();
        (evidence.seed, evidence.scale) = (self.seed, self.scale);
        evidence.origins = Some(self.services.origins());
        (evidence.topic, evidence.group) = (id.clone(), id.clone());
        let terms = Terms {
            services: Arc::clone(&self.services),
            nodes: experiment.nodes,
            protocol,
            seed: self.seed,
            scale: self.scale,
            id,
            schema: format!("lab_{}_{number}", self.id),
            directory: self.directory.join(evidence.file_stem()),
            line: self.progress.line(&label),
        };
        let begun = if is_interrupted() { Err(interrupted()) } else { Case::begin(terms).await };
        match begun {
            Ok(case) => self.run_case(experiment, case, &mut evidence).await,
            Err(error) => {
                (evidence.verdict, evidence.reasons) =
                    verdict(experiment.expects, Err(error), None);
            }
        }
        evidence.ended = now();
        Ok((number, self.report(evidence).await?))
    }

    async fn run_case(&self, experiment: &Experiment, case: Case, evidence: &mut Evidence) {
        let run = AssertUnwindSafe((experiment.run)(&case)).catch_unwind();
        let ran = select! {
            ran = run => ran.unwrap_or_else(|_| Err(anyhow!("the experiment panicked"))),
            error = interruption() => Err(error),
        };
        // It may have failed by it: all processes of ours have ended.
        let ran = if is_interrupted() { Err(interrupted()) } else { ran };
        let (collected, members) = case.evidence().await;
        let removed = if self.keep { Ok(()) } else { self.remove(&case).await };
        let findings = collected.findings;
        (evidence.verdict, evidence.reasons) = verdict(experiment.expects, ran, findings.as_ref());
        if let Err(error) = removed {
            if evidence.verdict == Verdict::Pass {
                evidence.verdict = Verdict::Fail;
            }
            evidence.reasons.push(format!("what it made could not be removed: {error:#}"));
        }
        evidence.steps = collected.steps;
        evidence.counts = collected.counts;
        evidence.findings = findings;
        evidence.committed = collected.committed;
        evidence.effects = collected.effects;
        evidence.members = members;
    }

    /// Removes what an experiment made, where there still is something.
    async fn remove(&self, case: &Case) -> Result<()> {
        if !is_interrupted() {
            return case.remove().await;
        }
        let origins = self.services.origins();
        let all = async {
            let (mut schema, mut topic) = (Ok(()), Ok(()));
            if origins.postgresql == Origin::Given {
                schema = case.remove_schema().await;
            }
            if origins.kafka == Origin::Given {
                topic = case.remove_topic().await;
            }
            schema.and(topic)
        };
        timeout(FAREWELL, all).await.unwrap_or_else(|_| Err(interrupted()))
    }

    /// Shows what came of it, and writes its file.
    async fn report(&self, evidence: Evidence) -> Result<Evidence> {
        self.progress.say(report::row(&evidence));
        report::write_one(&self.directory, &evidence).await?;
        Ok(evidence)
    }
}

/// Waits until this process is told to end.
async fn interruption() -> anyhow::Error {
    while !is_interrupted() {
        sleep(Duration::from_millis(100)).await;
    }
    interrupted()
}

fn interrupted() -> anyhow::Error {
    Interrupted.into()
}

/// The run was told to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

/// What follows from how it went and what the oracle found.
fn verdict(
    expects: Expects,
    ran: Result<()>,
    findings: Option<&Findings>,
) -> (Verdict, Vec<String>) {
    if let Err(error) = ran {
        let lacks = error.is::<Missing>() || error.is::<Lacking>() || error.is::<Interrupted>();
        let verdict = if lacks { Verdict::NotRun } else { Verdict::Fail };
        return (verdict, vec![format!("{error:#}")]);
    }
    let Some(findings) = findings else {
        return (Verdict::Fail, vec!["the oracle was not asked".to_owned()]);
    };
    match expects {
        Expects::Pass => (findings.verdict, findings.reasons.clone()),
        Expects::Violations(kinds) => {
            let missing: Vec<_> = kinds.iter().filter(|it| findings.count(**it) == 0).collect();
            if findings.verdict == Verdict::Fail && missing.is_empty() {
                let found = findings.reasons.join(", ");
                return (Verdict::Pass, vec![format!("the oracle says FAIL: {found}")]);
            }
            let said = format!("the oracle says {:?}: {:?}", findings.verdict, findings.reasons);
            (Verdict::Fail, vec![format!("the fault was not found: {missing:?}; {said}")])
        }
    }
}

// ===== impl Arguments =====

impl Arguments {
    fn asks_for(&self, is_called: impl Fn(&str) -> bool) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| is_called(name))
    }

    fn scale(&self) -> Scale {
        let Self { quick, rounds, chaos, .. } = *self;
        let rounds = rounds.unwrap_or(if quick { 2 } else { 20 });
        Scale { quick, rounds, chaos }
    }
}

// ===== impl Ended =====

impl Ended {
    fn of(evidence: &[Evidence]) -> Self {
        let has = |verdict| evidence.iter().any(|it| it.verdict == verdict);
        if has(Verdict::Fail) {
            Self::Failed
        } else if has(Verdict::NotRun) || evidence.is_empty() {
            Self::NotRun
        } else {
            Self::Passed
        }
    }
}
