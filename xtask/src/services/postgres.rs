use std::{
    env::consts::{ARCH, OS},
    fs::{self, File, Permissions},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use lzma_rust2::XzReader;

use super::{
    Origin, Signal, Sources, compose,
    maven::Artifact,
    missing::Missing,
    ports::Port,
    probe,
    run::Run,
    secret,
    server::{Plan, Server, tail},
    user::Unprivileged,
};
use crate::report::note;

const POSTGRES: Artifact = Artifact {
    name: "PostgreSQL",
    profile: "postgres",
    goal: "unpack-dependencies",
    instead: "give one with --database URL, or put `postgres` and `initdb`, 15 or newer, on the path",
};

/// The oldest PostgreSQL whose binaries on the path are used.
const OLDEST: u32 = 15;

/// What a server for tests runs with.
const SETTINGS: &str = "\
max_connections = 200
unix_socket_directories = ''
";

/// What a server on tmpfs runs with beside that: writing costs nothing there,
/// so each commit that leads a group waits for 1 ms. It is a steady stand-in
/// for a disk whose flush takes as long.
const IN_MEMORY_SETTINGS: &str = "\
commit_delay = 1000
commit_siblings = 0
shared_buffers = 512MB
max_wal_size = 4GB
checkpoint_timeout = 30min
";

const TMPFS: &str = "/dev/shm";

/// What kind of PostgreSQL is wanted.
///
/// Anything but the default can be had from local processes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// Keeps the data on tmpfs, where each flush of a commit takes 1 ms: for
    /// benchmarks on machines with unsteady disks.
    pub in_memory: bool,
    /// Settings of the server, instead of ours and PostgreSQL's.
    pub settings: Vec<(String, String)>,
}

/// A PostgreSQL that answers.
///
/// Ended, if it is ours, when it is dropped.
#[derive(Debug)]
pub struct Database {
    url: String,
    version: String,
    origin: Origin,
    server: Option<Server>,
    _port: Option<Port>,
}

// ===== impl Database =====

impl Database {
    /// Finds or starts a PostgreSQL, and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails with a [`Missing`] when there is none to be had here, or none of
    /// that kind; and with the end of the log when one does not start.
    pub fn start(run: &Run, sources: &Sources, options: &DatabaseOptions) -> Result<Self> {
        let is_plain = *options == DatabaseOptions::default();
        if let Some(url) = &sources.database {
            if !is_plain {
                let what = "data in memory and settings need a PostgreSQL of our own";
                return Err(Missing::new(what, "leave the address out").into());
            }
            let (url, version) = (url.clone(), probe::check_postgres(url)?);
            return Ok(Self { url, version, origin: Origin::Given, server: None, _port: None });
        }
        if is_plain && !sources.local && compose::answers() {
            let password = secret()?;
            let variables = [("TIDEGATE_DATABASE_PASSWORD", password.as_str())];
            let port = compose::up(run, "postgres", "TIDEGATE_DATABASE_PORT", &variables)?;
            let url = url(&password, (Ipv4Addr::LOCALHOST, port).into());
            let version = probe::check_postgres(&url)?;
            return Ok(Self { url, version, origin: Origin::Container, server: None, _port: None });
        }
        Self::local(run, options)
    }

    /// Where clients connect: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The version that the server tells.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What serves.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The server, to be stopped and started, if it is ours.
    pub fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }

    fn local(run: &Run, options: &DatabaseOptions) -> Result<Self> {
        let user = Unprivileged::find()?;
        // The server must be able to reach its data, and its own files.
        let public = if user.may_enter(run.directory()) {
            run.directory().to_owned()
        } else {
            run.add_directory(&std::env::temp_dir())?
        };
        let binaries = find_binaries(run, &user, &public)?;
        let home = if options.in_memory { run.add_directory(TMPFS.as_ref())? } else { public };

        let port = Port::reserve().context("no port is free")?;
        let password = secret()?;
        let name = run.name("postgres");
        let cluster = Cluster { binaries, user, data: home.join(&name) };
        cluster.initialize(run, &format!("{name}-initdb"), &password)?;
        cluster.configure(port.number(), options)?;

        let url = url(&password, port.address());
        let mut server = Server::new(run, &name, cluster.plan(url.clone()));
        server.start()?;
        let version = probe::check_postgres(&url)?;
        Ok(Self { url, version, origin: Origin::Local, server: Some(server), _port: Some(port) })
    }
}

/// A server's data, with what runs on it.
#[derive(Clone, Debug)]
struct Cluster {
    /// The folder with `initdb` and `postgres`; none for the path.
    binaries: Option<PathBuf>,
    user: Unprivileged,
    data: PathBuf,
}

// ===== impl Cluster =====

impl Cluster {
    fn initialize(&self, run: &Run, name: &str, password: &str) -> Result<()> {
        self.user.create_dir(&self.data)?;
        let file = self.data.with_extension("password");
        self.user.write(&file, password)?;
        let mut command = self.command("initdb");
        command
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"])
            // In clear over loopback: the other ways cost clients some
            // milliseconds for each connection, unoptimised ones far more.
            .arg("--auth=password")
            .arg(format!("--pwfile={}", file.display()))
            .arg("--pgdata")
            .arg(&self.data);
        let status = run.spawn_logged(name, &mut command, Signal::SIGKILL)?.wait()?;
        fs::remove_file(&file)?;
        if !status.success() {
            bail!("PostgreSQL's data was not made\n{}", tail(&run.log(name)));
        }
        Ok(())
    }

    fn configure(&self, port: u16, options: &DatabaseOptions) -> Result<()> {
        let file = self.data.join("postgresql.conf");
        let mut text = fs::read_to_string(&file)?;
        text.push_str(&format!("\nlisten_addresses = '127.0.0.1'\nport = {port}\n{SETTINGS}"));
        if options.in_memory {
            text.push_str(IN_MEMORY_SETTINGS);
        }
        for (name, value) in &options.settings {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        fs::write(file, text)?;
        Ok(())
    }

    fn plan(self, url: String) -> Plan {
        Plan {
            command: Box::new(move || {
                let mut command = self.command("postgres");
                command.arg("-D").arg(&self.data);
                command
            }),
            // At once, without a checkpoint, but not without its clean-up of
            // shared memory.
            signal: Signal::SIGQUIT,
            ready: Box::new(move || probe::check_postgres(&url).map(drop)),
        }
    }

    fn command(&self, program: &str) -> Command {
        let program =
            self.binaries.as_ref().map_or_else(|| program.into(), |bin| bin.join(program));
        let mut command = Command::new(program);
        // Ours may be a folder that its user cannot read.
        command.current_dir("/");
        self.user.apply(&mut command);
        command
    }
}

fn url(password: &str, address: SocketAddr) -> String {
    format!("postgres://postgres:{password}@{address}/postgres")
}

/// The folder with PostgreSQL's programs; `None` if they are on the path.
fn find_binaries(run: &Run, user: &Unprivileged, public: &Path) -> Result<Option<PathBuf>> {
    if let Some(version) = version_on_path("postgres").min(version_on_path("initdb")) {
        if version >= OLDEST {
            return Ok(None);
        }
        note(&format!("the PostgreSQL {version} on the path is too old"));
    }
    let Some((architecture, archive)) = artifact() else {
        let what = format!("there is no PostgreSQL {OLDEST} or newer on the path");
        return Err(Missing::new(what, format!("install it, or {}", POSTGRES.instead)).into());
    };
    let folder = POSTGRES.fetch(run, &[format!("-Dpostgres.architecture={architecture}")])?;
    let shared = folder.join("unpacked");
    let unpacked = if user.may_enter(&folder) { shared } else { public.join("unpacked") };
    if !unpacked.is_dir() {
        unpack(&folder.join(archive), &unpacked, public)?;
    }
    Ok(Some(unpacked.join("bin")))
}

/// What the jar and the archive in it are called for this machine.
fn artifact() -> Option<(&'static str, &'static str)> {
    match (OS, ARCH) {
        ("linux", "x86_64") => Some(("amd64", "postgres-linux-x86_64.txz")),
        ("linux", "aarch64") => Some(("arm64v8", "postgres-linux-arm_64.txz")),
        _ => None,
    }
}

fn unpack(archive: &Path, folder: &Path, staging: &Path) -> Result<()> {
    let read = || {
        let fresh = tempfile::tempdir_in(staging)?;
        let archive = File::open(archive)?;
        tar::Archive::new(XzReader::new(archive, true)).unpack(fresh.path())?;
        Ok::<_, std::io::Error>(fresh.keep())
    };
    let fresh = read().with_context(|| format!("unpacking {}", archive.display()))?;
    // The server's user reads it.
    fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
    match fs::rename(&fresh, folder) {
        // Another run has put the same there in the meantime.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => renamed.with_context(|| format!("keeping {}", folder.display())),
    }
}

fn version_on_path(program: &str) -> Option<u32> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// The first number in `postgres (PostgreSQL) 17.5 (Debian 17.5-1)`.
fn parse_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once(") ")?;
    let digits = version.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn the_version_is_read_from_releases_and_previews() {
        let check = |text, version| assert_eq!(parse_version(text), version, "{text}");
        check("postgres (PostgreSQL) 17.5 (Debian 17.5-1.pgdg120+1)\n", Some(17));
        check("initdb (PostgreSQL) 9.6.24\n", Some(9));
        check("postgres (PostgreSQL) 19devel\n", Some(19));
        check("postgres: not found", None);
    }
}
