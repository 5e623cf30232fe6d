//! What a run leaves behind: a file for each experiment, an index, and a page.

mod timeline;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_oracle::Verdict;

use self::timeline::Timeline;
use crate::evidence::Evidence;

const PAGE: &str = include_str!("report/page.html");

/// One line about one experiment.
pub(crate) fn row(evidence: &Evidence) -> String {
    let seconds = (evidence.ended - evidence.began) / 1000;
    let name = format!("{} ({}, seed {})", evidence.name, evidence.protocol, evidence.seed);
    let mut row = format!("{:<8} {seconds:>4} s  {name}", evidence.verdict.to_string());
    let summary = evidence.summary();
    if !summary.is_empty() {
        row.push_str(": ");
        row.push_str(&summary);
    }
    for reason in &evidence.reasons {
        row.push_str("\n               ");
        row.push_str(reason);
    }
    row
}

/// The table at the end of a run.
pub(crate) fn table(evidence: &[Evidence]) -> String {
    let count = |verdict| evidence.iter().filter(|it| it.verdict == verdict).count();
    let (passed, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    let not_run = count(Verdict::NotRun);
    let mut table = String::from("\n");
    for it in evidence {
        let seconds = (it.ended - it.began) / 1000;
        table.push_str(&format!(
            "{:<8} {:<48} {:<12} {:>4} s\n",
            it.verdict.to_string(),
            it.name,
            it.protocol.as_str(),
            seconds
        ));
    }
    table.push_str(&format!("{passed} passed, {failed} failed, {not_run} not run"));
    table
}

/// Writes the evidence of one experiment.
pub(crate) async fn write_one(directory: &Path, evidence: &Evidence) -> Result<()> {
    let file = directory.join(format!("{}.json", evidence.file_stem()));
    Ok(tokio::fs::write(file, serde_json::to_vec_pretty(evidence)?).await?)
}

/// Writes the index and the page, and returns the page's path.
pub(crate) async fn write(directory: &Path, id: &str, all: &[Evidence]) -> Result<PathBuf> {
    let each = all.iter().map(|it| {
        json!({
            "name": it.name,
            "protocol": it.protocol,
            "seed": it.seed,
            "verdict": it.verdict,
            "reasons": it.reasons,
            "seconds": (it.ended - it.began) / 1000,
            "file": format!("{}.json", it.file_stem()),
        })
    });
    let index = json!({
        "run": id,
        "versions": all.first().map(|it| &it.versions),
        "experiments": each.collect::<Vec<_>>(),
    });
    tokio::fs::write(directory.join("index.json"), serde_json::to_vec_pretty(&index)?).await?;
    let shown: Vec<_> = all.iter().map(shown).collect();
    let versions = all.first().map(|it| &it.versions);
    let data = json!({ "run": id, "versions": versions, "experiments": shown });
    let data = serde_json::to_string(&data)?;
    // A script ends at the first `</`, in a string too.
    let page = PAGE.replace("/*DATA*/null", &data.replace("</", "<\\/"));
    let path = directory.join("report.html");
    tokio::fs::write(&path, page).await?;
    Ok(std::fs::canonicalize(&path)?)
}

/// What the page shows of an experiment; the rest is in its file.
fn shown(evidence: &Evidence) -> Value {
    let members = evidence.members.iter().map(|it| {
        json!({ "name": it.name, "process": it.process, "end": it.end, "arguments": it.arguments })
    });
    json!({
        "name": evidence.name,
        "about": evidence.about,
        "protocol": evidence.protocol,
        "seed": evidence.seed,
        "verdict": evidence.verdict,
        "reasons": evidence.reasons,
        "summary": evidence.summary(),
        "began": evidence.began,
        "ended": evidence.ended,
        "steps": evidence.steps,
        "members": members.collect::<Vec<_>>(),
        "file": format!("{}.json", evidence.file_stem()),
        "timeline": Timeline::of(evidence),
    })
}
