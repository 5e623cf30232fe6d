//! Rules about packages: their manifests and what stands beside them.

use std::fs;

use anyhow::{Context as _, Result};
use cargo_metadata::Package;

use super::Finding;
use crate::workspace::{Workspace, folder, root};

/// The crates whose documentation is in `lib.rs` rather than in a README.
const WITHOUT_README: &[&str] = &["tidegate", "tidegate-core"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in workspace.packages() {
        findings.extend(check_lints(package)?);
    }
    for package in workspace.packages_in("crates") {
        let has_readme = folder(package).join("README.md").is_file();
        if !has_readme && !WITHOUT_README.contains(&&**package.name) {
            findings.push(format!("{} has no README.md", package.name));
        }
    }
    let examples = workspace.packages_in("examples");
    if !examples.is_empty() {
        let list = fs::read_to_string(root().join("examples/README.md")).unwrap_or_default();
        findings.extend(
            examples
                .into_iter()
                .filter(|example| !list.contains(&**example.name))
                .map(|example| format!("{} is not listed in examples/README.md", example.name)),
        );
    }
    Ok(findings)
}

fn check_lints(package: &Package) -> Result<Option<Finding>> {
    let text = fs::read_to_string(&package.manifest_path)
        .with_context(|| format!("reading {}", package.manifest_path))?;
    Ok((!inherits_lints(&text)?).then(|| format!("{} does not inherit the lints", package.name)))
}

fn inherits_lints(manifest: &str) -> Result<bool> {
    let manifest: toml::Table = manifest.parse()?;
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    Ok(inherits.and_then(toml::Value::as_bool) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::inherits_lints;

    #[test]
    fn lints_are_inherited_in_either_form() {
        assert!(inherits_lints("[lints]\nworkspace = true\n").unwrap());
        assert!(inherits_lints("lints.workspace = true\n").unwrap());
        assert!(!inherits_lints("[lints.rust]\nunsafe_code = \"allow\"\n").unwrap());
        assert!(!inherits_lints("[package]\nname = \"a\"\n").unwrap());
    }
}
