use std::{
    fs::{self, File},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result};
use nix::unistd::{User, geteuid};

use super::missing::Missing;

/// Who PostgreSQL runs as: it refuses to run as root.
#[derive(Clone, Debug)]
pub(super) struct Unprivileged(Option<User>);

impl Unprivileged {
    /// This user, or for root one that may do little.
    pub(super) fn find() -> Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self(None));
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name)? {
                return Ok(Self(Some(user)));
            }
        }
        Err(Missing::new(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`",
            "add one with `useradd --system postgres`",
        )
        .into())
    }

    /// Whether this user can reach a folder: whether all above it let it through.
    pub(super) fn may_enter(&self, directory: &Path) -> bool {
        let is_open = |path: &Path| {
            fs::metadata(path).is_ok_and(|folder| folder.permissions().mode() & 0o001 != 0)
        };
        self.0.is_none() || directory.ancestors().all(is_open)
    }

    /// Makes a folder that this user alone can read.
    pub(super) fn create_dir(&self, directory: &Path) -> Result<()> {
        fs::create_dir(directory).with_context(|| format!("making {}", directory.display()))?;
        self.own(directory, 0o700)
    }

    /// Writes a file that this user alone can read.
    pub(super) fn write(&self, file: &Path, text: &str) -> Result<()> {
        // The mode comes before the text: one of these is a password.
        File::create(file)?;
        self.own(file, 0o600)?;
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// Makes a command run as this user.
    pub(super) fn apply(&self, command: &mut Command) {
        if let Some(user) = &self.0 {
            // The standard library drops root's other groups along with it.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }

    fn own(&self, path: &Path, mode: u32) -> Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        if let Some(user) = &self.0 {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(())
    }
}
