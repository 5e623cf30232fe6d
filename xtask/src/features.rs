//! Features: all that can be built here, and every one alone, and every pair.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::Command,
};

use anyhow::Result;
use cargo_metadata::Package;
use xshell::{Shell, cmd};

use crate::{report::note, workspace::Workspace};

/// The feature that needs the development files of OpenSSL.
const SSL: &str = "ssl";

/// The arguments that switch on every feature that can be built here.
///
/// All, but for TLS where there is no OpenSSL to build it with.
///
/// # Errors
///
/// When Cargo cannot read the workspace.
pub fn feature_arguments() -> Result<Vec<String>> {
    if has_openssl() {
        return Ok(vec!["--all-features".to_owned()]);
    }
    note(&"the feature `ssl` is left out: pkg-config knows no openssl (install libssl-dev)");
    let workspace = Workspace::load()?;
    let named = |package| {
        let features = features(package).into_iter().filter(|name| *name != SSL);
        features.map(move |feature| format!("{}/{feature}", package.name))
    };
    let all: Vec<_> = workspace.packages().into_iter().flat_map(named).collect();
    Ok(vec!["--features".to_owned(), all.join(",")])
}

fn has_openssl() -> bool {
    let asked = Command::new("pkg-config").args(["--exists", "openssl"]).status();
    env::var_os("OPENSSL_DIR").is_some() || asked.is_ok_and(|status| status.success())
}

/// Checks the libraries and programs of each crate with no feature, with each
/// one, and with each pair; of those that switch on the same, the first.
///
/// Tests are left out: their dependencies would switch features on behind our
/// back. Clippy it is, since `-D warnings` reaches our crates alone through it,
/// and the dependencies stay built: also those that are ours, which are looked
/// at with sets of their own.
pub(crate) fn run(sh: &Shell, workspace: &Workspace) -> Result<()> {
    let ssl = has_openssl();
    for package in workspace.packages() {
        let mut names = features(package);
        names.retain(|name| ssl || *name != SSL);
        for features in distinct(package, sets(&names)) {
            let (name, features) = (&*package.name, features.join(","));
            cmd!(
                sh,
                "cargo clippy --quiet -p {name} --no-deps --no-default-features --features {features} --locked -- -D warnings"
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

/// Of the sets that switch on the same, one.
fn distinct<'a>(package: &Package, mut sets: Vec<Vec<&'a str>>) -> Vec<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    sets.retain(|set| seen.insert(implied(&package.features, set)));
    sets
}

/// All that a set switches on: itself, and what that stands for.
fn implied<'a>(of: &'a BTreeMap<String, Vec<String>>, set: &[&'a str]) -> BTreeSet<&'a str> {
    let mut on = BTreeSet::new();
    let mut next = set.to_vec();
    while let Some(name) = next.pop() {
        if on.insert(name) {
            next.extend(of.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::{implied, sets};

    #[test]
    fn the_sets_are_none_each_alone_and_each_pair() {
        let expected: &[&[&str]] =
            &[&[], &["a"], &["a", "b"], &["a", "c"], &["b"], &["b", "c"], &["c"]];
        assert_eq!(sets(&["a", "b", "c"].into()), expected);
        assert_eq!(sets(&[].into()), [[""; 0]]);
    }

    #[test]
    fn a_feature_switches_on_what_it_stands_for() {
        let of = [("a", vec!["b"]), ("b", vec!["dep:x"]), ("c", vec![])];
        let of =
            of.map(|(name, on)| (name.to_owned(), on.into_iter().map(str::to_owned).collect()));
        let of = of.into();
        assert_eq!(implied(&of, &["a"]), implied(&of, &["b", "a"]));
        assert_eq!(implied(&of, &["a"]), ["a", "b", "dep:x"].into());
        assert_ne!(implied(&of, &["a"]), implied(&of, &["a", "c"]));
    }
}
