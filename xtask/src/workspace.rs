//! What Cargo and Git know of the workspace.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};

/// The packages and files of the workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    metadata: Metadata,
}

// ===== impl Workspace =====

impl Workspace {
    /// Asks Cargo.
    pub(crate) fn load() -> Result<Self> {
        let mut command = MetadataCommand::new();
        command.current_dir(root()).no_deps();
        Ok(Self { metadata: command.exec()? })
    }

    /// The members, in the order of their names.
    pub(crate) fn packages(&self) -> Vec<&Package> {
        let mut packages = self.metadata.workspace_packages();
        packages.sort_by_key(|package| &package.name);
        packages
    }

    /// The members whose folder is one of `directory`.
    pub(crate) fn packages_in(&self, directory: &str) -> Vec<&Package> {
        let parent = root().join(directory);
        let mut packages = self.packages();
        packages.retain(|package| folder(package).parent() == Some(&parent));
        packages
    }

    /// Where Cargo builds.
    pub(crate) fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// Has a program that was built take the place of this process: its path
    /// below [`target`](Self::target). Returns only if that fails.
    pub(crate) fn run_in_place(&self, program: &str, options: &[OsString]) -> Result<()> {
        let program = self.target().join(program);
        let mut command = Command::new(&program);
        command.current_dir(root()).args(options).env("CARGO_TARGET_DIR", self.target());
        Err(command.exec()).with_context(|| format!("starting {}", program.display()))
    }

    /// Where the services of this workspace live.
    pub(crate) fn services(&self) -> PathBuf {
        self.target().join("services")
    }
}

/// The folder of a package.
pub(crate) fn folder(package: &Package) -> &Path {
    package.manifest_path.as_std_path().parent().expect("a manifest is in a folder")
}

/// The folder of the workspace's manifest.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is one level below the root")
}

/// The files under `root` that belong to the project: what Git tracks, and what
/// it would add.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("starting git")?;
    ensure!(output.status.success(), "git cannot list the files of {}", root.display());
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let mut files: Vec<_> = names.split_terminator('\0').map(PathBuf::from).collect();
    // A file may be deleted and not yet so in the index.
    files.retain(|file| root.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}
