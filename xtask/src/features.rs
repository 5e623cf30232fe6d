//! Every feature alone, and every pair.

use std::collections::BTreeSet;

use anyhow::Result;
use cargo_metadata::Package;
use xshell::{Shell, cmd};

use crate::workspace::Workspace;

/// Checks the libraries and programs of each crate with no feature, with each
/// one, and with each pair.
///
/// Tests are left out: their dependencies would switch features on behind our
/// back. Clippy it is, since `-D warnings` reaches our crates alone through it,
/// and the dependencies stay built.
pub(crate) fn run(sh: &Shell, workspace: &Workspace) -> Result<()> {
    for package in workspace.packages() {
        for features in sets(&features(package)) {
            let (name, features) = (&*package.name, features.join(","));
            cmd!(
                sh,
                "cargo clippy --quiet -p {name} --no-default-features --features {features} --locked -- -D warnings"
            )
            .run()?;
        }
    }
    Ok(())
}

/// The features of a crate, without the sum of some that is the default.
fn features(package: &Package) -> BTreeSet<&str> {
    package.features.keys().map(String::as_str).filter(|name| *name != "default").collect()
}

/// None, each alone, and each pair.
fn sets<'a>(features: &BTreeSet<&'a str>) -> Vec<Vec<&'a str>> {
    let mut sets = vec![Vec::new()];
    for (index, feature) in features.iter().enumerate() {
        sets.push(vec![*feature]);
        sets.extend(features.iter().skip(index + 1).map(|other| vec![*feature, *other]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn the_sets_are_none_each_alone_and_each_pair() {
        let expected: &[&[&str]] =
            &[&[], &["a"], &["a", "b"], &["a", "c"], &["b"], &["b", "c"], &["c"]];
        assert_eq!(sets(&["a", "b", "c"].into()), expected);
        assert_eq!(sets(&[].into()), [[""; 0]]);
    }
}
