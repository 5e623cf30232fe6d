//! A run that is told to end, over services that are not its own: those that
//! `TIDEGATE_KAFKA` and `TIDEGATE_DATABASE` name.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer as _},
};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lab, which is killed if the test fails.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        // It has ended, if all is well.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn an_interrupt_removes_what_was_made_and_leaves_what_was_seen() {
    let (Ok(kafka), Ok(database)) = (env::var("TIDEGATE_KAFKA"), env::var("TIDEGATE_DATABASE"))
    else {
        eprintln!("skipped: TIDEGATE_KAFKA and TIDEGATE_DATABASE name no services");
        return;
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted");
    drop(fs::remove_dir_all(&directory));
    let report = directory.join("report");
    let mut lab = Lab(Command::new(env!("CARGO_BIN_EXE_tidegate-lab"))
        .args(["--only", "slow-handler", "--protocol", "consumer", "--report"])
        .arg(&report)
        .arg("--target")
        .arg(&directory)
        .env("TIDEGATE_KAFKA", &kafka)
        .env("TIDEGATE_DATABASE", &database)
        .stdout(Stdio::null())
        .spawn()
        .unwrap());
    let log = report.join("slow-handler.consumer/member.log");
    until("a worker works", || {
        fs::read_to_string(&log).ok()?.contains("a stack starts").then_some(())
    })
    .await;

    kill(Pid::from_raw(lab.0.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = until("the lab ends", || lab.0.try_wait().unwrap()).await;
    assert_eq!(status.signal(), Some(Signal::SIGINT as i32), "{status}");

    let index: Value =
        serde_json::from_slice(&fs::read(report.join("index.json")).unwrap()).unwrap();
    let experiments = index["experiments"].as_array().unwrap();
    assert!(!experiments.is_empty());
    for it in experiments {
        assert_eq!((&it["verdict"], &it["reasons"]), (&"NOT_RUN".into(), &["interrupted"].into()));
    }
    let prefix = format!("lab-{}-", index["run"].as_str().unwrap());
    let client: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &kafka).create().unwrap();
    let topics = client.fetch_metadata(None, PATIENCE).unwrap();
    assert!(topics.topics().iter().all(|it| !it.name().starts_with(&prefix)), "a topic is left");
    let groups = client.fetch_group_list(None, PATIENCE).unwrap();
    assert!(groups.groups().iter().all(|it| !it.name().starts_with(&prefix)), "a group is left");
    let mut connection = PgConnection::connect(&database).await.unwrap();
    let left: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM information_schema.schemata WHERE starts_with(schema_name, $1)",
    )
    .bind(prefix.replace('-', "_"))
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(left, 0, "a schema is left");
}

async fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = holds() {
                return found;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it did not happen: {what}"))
}
