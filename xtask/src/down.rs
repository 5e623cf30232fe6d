//! Ends what `up` left running.

use anyhow::Result;

use crate::{report::note, services::Run, workspace::Workspace};

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let kept = Run::kept(&workspace.services())?;
    if kept.is_empty() {
        note(&"nothing is up");
    }
    for run in kept {
        run.end()?;
        note(&"down");
    }
    Ok(())
}
