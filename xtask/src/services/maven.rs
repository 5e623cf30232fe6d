//! Fetches jars through Maven. Nothing is built.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{Signal, missing::Missing, run::Run};
use crate::report::note;

const POM: &str = include_str!("../../pom.xml");

/// One of the profiles in `pom.xml`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artifact {
    /// The service, as people call it.
    pub(super) name: &'static str,
    pub(super) profile: &'static str,
    /// What is done with the jars: a goal of Maven's dependency plugin.
    pub(super) goal: &'static str,
    /// What can be done instead.
    pub(super) instead: &'static str,
}

// ===== impl Artifact =====

impl Artifact {
    pub(super) fn version(&self) -> &'static str {
        property(&format!("{}.version", self.profile)).expect("the profile names its version")
    }

    /// The folder with the jars, fetched at first use.
    pub(super) fn fetch(&self, run: &Run, options: &[String]) -> Result<PathBuf> {
        let cache = run.cache();
        let folder = cache.join(format!("{}-{}", self.profile, self.version()));
        if folder.is_dir() {
            return Ok(folder);
        }
        note(&format!("fetching {} {} through Maven", self.name, self.version()));
        let fresh = run.directory().join(run.name("fetched"));
        let log = run.name("maven");
        let mut command = Command::new("mvn");
        command
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("pom.xml"))
            .args(["--activate-profiles", self.profile])
            .arg(format!("dependency:{}", self.goal))
            .arg(format!("-DoutputDirectory={}", fresh.display()))
            .arg(format!("-DmarkersDirectory={}", fresh.with_extension("markers").display()))
            .args(options);
        let mut maven = match run.spawn_logged(&log, &mut command, Signal::SIGTERM) {
            Ok(maven) => maven,
            Err(error) if is_not_found(&error) => {
                let what = format!("{} is fetched through Maven, and there is no `mvn`", self.name);
                return Err(
                    Missing::new(what, format!("install Maven, or {}", self.instead)).into()
                );
            }
            Err(error) => return Err(error),
        };
        let status = maven.wait()?;
        if !status.success() {
            let what = format!("Maven could not fetch {} {}", self.name, self.version());
            let reason = first_error(&run.log(&log)).unwrap_or_else(|| status.to_string());
            return Err(Missing::new(what, format!("{} ({reason})", self.instead)).into());
        }
        fs::create_dir_all(&cache)?;
        match fs::rename(&fresh, &folder) {
            // Another run has put the same there in the meantime.
            Err(_) if folder.is_dir() => Ok(folder),
            renamed => {
                renamed.with_context(|| format!("keeping {}", folder.display()))?;
                Ok(folder)
            }
        }
    }
}

/// Whether a program was not there to be started.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    let source = error.root_cause().downcast_ref::<std::io::Error>();
    source.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// A property of the POM, so that versions stand in one place.
fn property(name: &str) -> Option<&'static str> {
    let (_, rest) = POM.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(value, _)| value)
}

fn first_error(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    text.lines().find_map(|line| line.strip_prefix("[ERROR] ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::property;

    #[test]
    fn versions_are_read_from_the_pom() {
        let kafka = property("kafka.version").unwrap();
        assert!(kafka.starts_with("4."), "{kafka}");
        assert_eq!(property("kafka.colour"), None);
    }
}
