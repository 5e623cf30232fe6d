//! What is started is ended, whatever happens to whoever started it.
//!
//! The programs are stand-ins, so that nothing has to be installed.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use nix::{sys::signal::kill, unistd::Pid};
use tempfile::TempDir;
use xtask::services::{Run, Signal};

/// A folder with stand-ins for Java, Maven and Docker, and what they left.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().expect("the temporary folder is writable") };
        fs::create_dir(stage.path("bin")).expect("the folder is new");
        let status = Command::new("mkfifo").arg(stage.path("started")).status();
        assert!(status.expect("mkfifo is part of every system").success());
        stage
    }

    /// Puts a shell script on the path. `$STAGE` is this folder.
    fn script(&self, name: &str, text: &str) {
        let file = self.path("bin").join(name);
        let folder = self.folder.path().display();
        fs::write(&file, format!("#!/bin/sh\nSTAGE='{folder}'\n{text}"))
            .expect("the folder is ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    }

    /// A Java whose broker never answers, but tells its process id.
    fn with_silent_kafka(self) -> Self {
        self.script(
            "java",
            "case \"$*\" in\n\
             -version) echo 'openjdk version \"17.0.1\"' >&2 ;;\n\
             *StorageTool*) ;;\n\
             *) echo $$ > \"$STAGE/started\"; exec sleep 1000 ;;\n\
             esac\n",
        );
        self.script(
            "mvn",
            "for option; do case $option in\n\
             -DoutputDirectory=*) mkdir -p \"${option#*=}\" ;;\n\
             esac; done\n",
        );
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn services(&self) -> PathBuf {
        self.path("target/services")
    }

    fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.services().join("runs")) else { return Vec::new() };
        entries.map(|entry| entry.expect("the folder is ours").path()).collect()
    }

    /// `cargo xtask`, with the stand-ins before everything else on the path.
    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env_remove("JAVA_HOME")
            .env_remove("TIDEGATE_KAFKA")
            .env_remove("TIDEGATE_DATABASE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts `up`, and waits until its Kafka has been started.
    fn up(&self) -> (Child, Pid) {
        let mut up = self.xtask(&["up", "--local"]).spawn().expect("xtask has been built");
        let (tell, told) = mpsc::channel();
        let started = self.path("started");
        let tell_start = tell.clone();
        thread::spawn(move || tell_start.send(fs::read_to_string(started)));
        // Without Kafka, `up` ends, and the pipe stays silent for ever.
        let mut errors = up.stderr.take().expect("it is piped");
        thread::spawn(move || {
            let text = std::io::read_to_string(&mut errors);
            tell.send(Err(std::io::Error::other(format!("`up` ended: {text:?}"))))
        });
        let pid = told.recv().expect("one of the two speaks").expect("Kafka starts first");
        (up, Pid::from_raw(pid.trim().parse().expect("it is a process id")))
    }

    /// Runs a command that fails, and returns what it says.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.xtask(arguments).output().expect("xtask has been built");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("xtask speaks UTF-8")
    }
}

fn is_running(pid: Pid) -> bool {
    // One that has ended, and for which nobody has waited, is a zombie.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

fn begin(services: &Path) -> Run {
    Run::begin(services, "test").expect("the folder is writable")
}

/// Starts a process that would go on, and returns it with its id.
fn start(run: &Run) -> (xtask::services::Process, Pid) {
    let process =
        run.spawn_logged("sleeper", &mut sleeper(), Signal::SIGTERM).expect("sleep is there");
    let pid = Pid::from_raw(process.id().try_into().expect("process ids fit"));
    assert!(is_running(pid));
    (process, pid)
}

#[test]
fn a_run_leaves_nothing_behind() {
    let stage = Stage::new();
    let run = begin(&stage.services());
    let directory = run.directory().to_owned();
    let (process, pid) = start(&run);
    drop(process);
    assert!(!is_running(pid));
    drop(run);
    assert!(!directory.exists());
}

#[test]
fn a_process_that_ignores_its_signal_while_it_is_stopped_is_ended() {
    let stage = Stage::new();
    let run = begin(&stage.services());
    let (process, pid) = start(&run);
    process.signal(Signal::SIGSTOP);
    drop(process);
    assert!(!is_running(pid));
}

#[test]
fn what_a_process_has_started_ends_with_it() {
    let stage = Stage::new();
    let run = begin(&stage.services());
    stage.script("parent", "sleep 1000 &\necho $! > \"$STAGE/started\"\nwait\n");
    let mut command = Command::new(stage.path("bin/parent"));
    let process =
        run.spawn_logged("parent", &mut command, Signal::SIGTERM).expect("it is a script");
    let child = fs::read_to_string(stage.path("started")).unwrap();
    drop(process);
    // The signal went to both; only the parent was waited for.
    while is_running(Pid::from_raw(child.trim().parse().unwrap())) {
        thread::yield_now();
    }
}

#[test]
fn a_panic_ends_what_was_started() {
    let stage = Stage::new();
    let mut started = None;
    let run = begin(&stage.services());
    let directory = run.directory().to_owned();
    catch_unwind(AssertUnwindSafe(|| {
        let run = run;
        let (_process, pid) = start(&run);
        started = Some(pid);
        panic!("on purpose");
    }))
    .unwrap_err();
    assert!(!is_running(started.expect("it was started before the panic")));
    assert!(!directory.exists());
}

#[test]
fn two_runs_do_not_meet() {
    let stage = Stage::new();
    let first = begin(&stage.services());
    let (_process, pid) = start(&first);
    let second = begin(&stage.services());
    assert_ne!(first.directory(), second.directory());
    drop(second);
    assert!(is_running(pid), "the second has not cleaned up the first");
}

#[test]
fn a_kept_run_goes_on_until_it_is_ended() {
    let stage = Stage::new();
    let exports = BTreeMap::from([("NAME".to_owned(), "value".to_owned())]);
    let run = begin(&stage.services());
    let (process, pid) = start(&run);
    run.keep(exports.clone()).unwrap();
    drop((process, run));
    drop(begin(&stage.services()));
    assert!(is_running(pid), "whoever comes next leaves it alone");

    let kept = Run::kept(&stage.services()).unwrap();
    let [kept] = kept.as_slice() else { panic!("there is one: {kept:?}") };
    assert_eq!(kept.exports(), &exports);
    assert!(kept.is_whole());
    kept.end().unwrap();
    assert!(!is_running(pid));
    assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
}

#[test]
fn only_the_very_process_that_was_started_is_ended() {
    let stage = Stage::new();
    let run = begin(&stage.services());
    let (mut process, pid) = start(&run);
    run.keep(BTreeMap::new()).unwrap();
    // As if the id had gone to another process since.
    let file = run.directory().join("run.json");
    let text = fs::read_to_string(&file).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["processes"][0]["birth"] = "another".into();
    fs::write(&file, record.to_string()).unwrap();

    let kept = Run::kept(&stage.services()).unwrap();
    assert!(!kept[0].is_whole());
    kept[0].end().unwrap();
    assert!(is_running(pid));
    process.signal(Signal::SIGKILL);
    process.wait().unwrap();
}

#[test]
fn an_interrupt_ends_what_was_started() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let stage = Stage::new().with_silent_kafka();
        let (mut up, kafka) = stage.up();
        let id = Pid::from_raw(up.id().try_into().unwrap());
        kill(id, signal).unwrap();
        let status = up.wait().unwrap();
        assert_eq!(status.signal(), Some(signal as i32), "it ends by the signal: {status}");
        assert!(!is_running(kafka));
        assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
    }
}

#[test]
fn what_a_killed_owner_has_left_is_ended_by_the_next_run() {
    let stage = Stage::new().with_silent_kafka();
    let (mut up, kafka) = stage.up();
    // Kafka may be quicker to speak than `up` is to note it down.
    let record = stage.runs()[0].join("run.json");
    while !fs::read_to_string(&record).unwrap().contains(&format!("\"pid\": {kafka}")) {
        thread::yield_now();
    }
    up.kill().unwrap();
    up.wait().unwrap();
    assert!(is_running(kafka), "nobody could end it");
    drop(begin(&stage.services()));
    assert!(!is_running(kafka));
    assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
}

#[test]
fn a_server_that_ends_while_it_starts_shows_the_end_of_its_log() {
    let stage = Stage::new().with_silent_kafka();
    stage.script(
        "java",
        "case \"$*\" in\n\
         -version) echo 'openjdk version \"21\"' >&2 ;;\n\
         *StorageTool*) ;;\n\
         *) echo 'the broker gives up'; exit 3 ;;\n\
         esac\n",
    );
    let error = stage.fails(&["up", "--local"]);
    assert!(error.contains("kafka-1 ended while it started, with exit status: 3"), "{error}");
    assert!(error.contains("the broker gives up"), "{error}");
    assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
}

/// Checks that `error` is one line, which says both what is missing and what to
/// do.
#[track_caller]
fn check_missing(error: &str, what: &str, remedy: &str) {
    let lines: Vec<_> = error.lines().filter(|line| !line.starts_with("fetching")).collect();
    let [line] = lines.as_slice() else { panic!("not one line: {error}") };
    assert!(line.contains(what) && line.contains(remedy), "{line}");
}

#[test]
fn what_cannot_be_had_is_one_line_that_says_what_to_install() {
    let remedy = "install Java 17 or newer, or give one with --kafka HOST:PORT";
    let stage = Stage::new();
    // A path with our folder alone: nothing is installed.
    let bare = |stage: &Stage| {
        let mut command = stage.xtask(&["up", "--local"]);
        let output = command.env("PATH", stage.path("bin")).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    check_missing(&bare(&stage), "there is no `java`", remedy);

    stage.script("java", "echo 'openjdk version \"11.0.2\"' >&2\n");
    check_missing(&bare(&stage), "Kafka cannot run on Java 11", remedy);

    stage.script("java", "echo 'openjdk version \"17\"' >&2\n");
    check_missing(&bare(&stage), "there is no `mvn`", "install Maven");

    stage.script("mvn", "echo '[ERROR] no route to anywhere'\nexit 1\n");
    check_missing(&bare(&stage), "Maven could not fetch Kafka", "no route to anywhere");
    assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
}

#[test]
fn an_address_that_was_given_is_asked_and_not_replaced() {
    let stage = Stage::new().with_silent_kafka();
    let error = stage.fails(&["up", "--kafka", "127.0.0.1:1"]);
    check_missing(&error, "no Kafka answers at 127.0.0.1:1", "leave the address out");
    let error = stage.fails(&["up", "--kafka", "127.0.0.1:1", "--nodes", "3"]);
    check_missing(&error, "need a Kafka of our own", "leave the address out");
}

#[test]
fn containers_are_used_where_an_engine_answers_and_ended_with_the_run() {
    let stage = Stage::new().with_silent_kafka();
    stage.script("docker", "echo \"$TIDEGATE_KAFKA_PORT $*\" >> \"$STAGE/docker.log\"\n");
    // The stand-in starts nothing, so nothing answers where Kafka should.
    check_missing(&stage.fails(&["up"]), "no Kafka answers", "start it");
    let log = fs::read_to_string(stage.path("docker.log")).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("--project-name")).collect();
    let [up, down] = lines.as_slice() else { panic!("started and ended: {log}") };
    let port = up.split(' ').next().unwrap();
    assert!(port.parse::<u16>().is_ok(), "{up}");
    assert!(up.ends_with("docker-compose.yaml up --detach --wait kafka"), "{up}");
    assert!(down.ends_with("docker-compose.yaml down --volumes --timeout 2"), "{down}");
    let project = |line: &str| line.split(' ').nth(3).map(str::to_owned);
    assert_eq!(project(up), project(down));
    assert_eq!(stage.runs(), [""; 0].map(PathBuf::from));
}

#[test]
fn down_without_up_does_nothing() {
    let stage = Stage::new();
    let output = stage.xtask(&["down"]).output().unwrap();
    assert_eq!(output.status, ExitStatus::from_raw(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "nothing is up\n");
}
