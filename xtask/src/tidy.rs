//! Rules about files that no compiler checks.

mod graph;
mod layers;
mod manifests;
mod readme;
mod source;
mod text;

use std::fs;

use anyhow::{Context as _, Result, ensure};

use self::source::Source;
use crate::{
    report::note,
    workspace::{self, Workspace},
};

/// A place that breaks a rule, and which one.
type Finding = String;

/// Checks every rule, and shows all that breaks one.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let findings = check(workspace)?;
    for finding in &findings {
        note(finding);
    }
    ensure!(findings.is_empty(), "{} findings of tidy", findings.len());
    note(&"tidy ok");
    Ok(())
}

fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let root = workspace::root();
    let mut findings = graph::check(&workspace.packages());
    findings.extend(manifests::check(workspace)?);
    findings.extend(readme::check()?);
    let mut sources = Vec::new();
    for file in workspace::files(root)? {
        // What is not text has no words.
        let Ok(text) = fs::read_to_string(root.join(&file)) else { continue };
        findings.extend(text::check(&file, &text));
        if file.extension().is_some_and(|extension| extension == "rs") {
            let source = Source::parse(&file, text)
                .with_context(|| format!("parsing {}", file.display()))?;
            findings.extend(source.check());
            sources.push(source);
        }
    }
    findings.extend(layers::check(&sources));
    Ok(findings)
}
