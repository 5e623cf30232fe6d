use std::collections::BTreeMap;

use crate::{case::Case, worker::Logged};

/// How many steps back a commit explains that was unanswered when its member
/// lost the partition, and those that nothing explains.
pub(super) fn by_cause(case: &Case) -> (usize, Vec<String>) {
    let (seen, logs) = (case.seen_commits(), case.logs());
    let mut last = BTreeMap::new();
    let (mut caused, mut uncaused) = (0, Vec::new());
    for it in seen {
        let Some(offset) = it.offset else { continue };
        let before = last.insert(it.partition.clone(), offset).unwrap_or(offset);
        if offset >= before {
            continue;
        }
        let name = format!("{}@{offset}", it.partition);
        let explained = logs.iter().any(|log| was_unanswered(log, &name, it.at));
        if explained {
            caused += 1;
        } else {
            uncaused.push(format!("{name} at {}, after {before}", it.at));
        }
    }
    (caused, uncaused)
}

/// Whether a member sent this before that time, and something else than the
/// answer came next: its end, or that of its work.
fn was_unanswered(log: &[Logged], name: &str, at: i64) -> bool {
    let sends = log.iter().enumerate().filter(|(_, event)| {
        event.message == "a commit is sent"
            && event.at <= at
            && event.text("offsets").is_some_and(|list| list.split(' ').any(|it| it == name))
    });
    sends.into_iter().any(|(index, _)| {
        let next = log[index + 1..].iter().find(|event| {
            matches!(
                event.message.as_str(),
                "a commit is accepted"
                    | "a commit was not accepted"
                    | "partitions given back"
                    | "partitions are lost"
                    | "no commit was answered: work is suspended"
                    | "the client is replaced"
            )
        });
        next.is_none_or(|event| event.message != "a commit is accepted")
    })
}
