use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::{case::Case, says, worker::Logged};

/// Counts the times at which committed offsets went back. Each has to have a cause that
/// is known; brokers began to serve offsets at `starts`.
pub(super) fn have_a_cause(case: &Case, starts: &[i64]) -> Result<()> {
    let StepsBack { late, loading, unknown } = StepsBack::of(case, starts);
    case.count("went back by a late commit", late);
    case.count("went back while a broker loaded", loading);
    ensure!(unknown.is_empty(), "committed offsets went back without a cause: {unknown:?}");
    Ok(())
}

/// Why committed offsets went back.
#[derive(Debug, Default)]
struct StepsBack {
    /// A commit that was unanswered when its member lost the partition. It healed
    /// with a later one.
    late: usize,
    /// A broker that has just started, and tells what it has read so far of the
    /// offsets' log: a moment later all is as before.
    loading: usize,
    /// Nothing that is known.
    unknown: Vec<String>,
}

/// A broker is done with loading after this, in milliseconds.
const LOADED: i64 = 10_000;

impl StepsBack {
    fn of(case: &Case, starts: &[i64]) -> Self {
        let (seen, logs) = (case.seen_commits(), case.logs());
        let mut last = BTreeMap::new();
        let mut steps = Self::default();
        for (index, it) in seen.iter().enumerate() {
            let Some(offset) = it.offset else { continue };
            let before = last.insert(it.partition.clone(), offset).unwrap_or(offset);
            if offset >= before {
                continue;
            }
            let name = format!("{}@{offset}", it.partition);
            let started = starts.iter().any(|start| (it.at - start).abs() < LOADED);
            let mut later = seen[index..].iter().filter(|later| later.partition == it.partition);
            let healed = later.find(|later| later.offset >= Some(before)).map(|later| later.at);
            let soon = healed.is_some_and(|healed| healed - it.at < LOADED);
            if started && soon {
                steps.loading += 1;
            } else if healed.is_some() && logs.iter().any(|log| was_unanswered(log, &name, it.at)) {
                steps.late += 1;
            } else {
                steps.unknown.push(format!("{name} at {}, after {before}", it.at));
            }
        }
        steps
    }
}

/// Whether a member sent this before that time, and something else than the
/// broker's answer came next: its end, or that of its work.
fn was_unanswered(log: &[Logged], name: &str, at: i64) -> bool {
    let sends = log.iter().enumerate().filter(|(_, event)| {
        event.message == says::COMMIT_SENT
            && event.at <= at
            && event.text("offsets").is_some_and(|list| list.split(' ').any(|it| it == name))
    });
    sends.into_iter().any(|(index, _)| {
        let next = log[index + 1..].iter().find(|event| {
            matches!(
                event.message.as_str(),
                says::COMMIT_ACCEPTED
                    | says::COMMIT_REFUSED
                    | says::GIVEN_BACK
                    | says::LOST
                    | says::SUSPENDED
                    | says::CLIENT_REPLACED
            )
        });
        next.is_none_or(|event| match event.message.as_str() {
            says::COMMIT_ACCEPTED => false,
            // Else the client has given it up.
            says::COMMIT_REFUSED => {
                event.text("error").is_some_and(|error| error.contains("Local:"))
            }
            _ => true,
        })
    })
}
