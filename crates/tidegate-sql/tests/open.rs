//! What is checked before anything is written, and what is never shown.

mod common;

use std::{
    io,
    sync::{Arc, Mutex},
};

use sea_orm::ConnectionTrait as _;
use tidegate_core::Class;
use tidegate_sql::{Database, DatabaseOptions, EffectError, NotDurable, OpenError, schema};

use crate::common::TestDatabase;

#[tokio::test]
async fn a_database_without_tables_says_what_to_run() {
    for test in TestDatabase::each().await {
        test.execute("DROP TABLE tidegate_parked").await;
        let error = Database::open(test.options.clone()).await.unwrap_err();
        assert!(matches!(error, OpenError::NotMigrated { table: "tidegate_parked" }), "{error}");
        assert!(error.to_string().contains("Database::migrate"));
        test.execute("DROP TABLE tidegate_schema").await;
        let error = Database::open(test.options.clone()).await.unwrap_err();
        assert!(matches!(error, OpenError::NotMigrated { table: "tidegate_schema" }), "{error}");
    }
}

#[tokio::test]
async fn tables_of_another_release_are_not_touched() {
    for test in TestDatabase::each().await {
        test.execute("INSERT INTO tidegate_schema (version) VALUES (7)").await;
        let error = Database::open(test.options.clone()).await.unwrap_err();
        let newer = OpenError::Newer { found: 7, known: schema::VERSION };
        assert_eq!(error.to_string(), newer.to_string());
        let error = Database::migrate(test.options.clone()).await.unwrap_err();
        assert_eq!(error.to_string(), newer.to_string());
        test.execute("UPDATE tidegate_schema SET version = version - 7").await;
        let error = Database::open(test.options.clone()).await.unwrap_err();
        let older = OpenError::Older { found: 0, needed: schema::VERSION };
        assert_eq!(error.to_string(), older.to_string());
        assert!(older.to_string().contains("Database::migrate"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_start_together_create_the_tables_once() {
    for test in TestDatabase::each().await {
        for table in schema::TABLES {
            test.execute(&format!("DROP TABLE {table}")).await;
        }
        let migrations = [(); 4].map(|()| tokio::spawn(Database::migrate(test.options.clone())));
        for migration in migrations {
            migration.await.unwrap().unwrap();
        }
        Database::migrate(test.options.clone()).await.unwrap();
        let opened = [(); 4].map(|()| tokio::spawn(Database::open(test.options.clone())));
        let mut namespaces = Vec::new();
        for database in opened {
            namespaces.push(database.await.unwrap().unwrap().namespace().clone());
        }
        assert!(namespaces.iter().all(|it| *it == namespaces[0]), "{namespaces:?}");
        assert_eq!(test.count("tidegate_namespace").await, 1);
    }
}

#[tokio::test]
async fn a_namespace_is_a_generation_of_a_target() {
    for test in TestDatabase::each().await {
        let first = test.database.namespace().clone();
        assert_eq!((first.target(), first.generation()), ("main", 1));
        let options = test.options.clone().with_namespace("main", 2);
        let second = Database::open(options).await.unwrap();
        let other = second.in_namespace("other", 2).await.unwrap();
        let numbers = [&first, second.namespace(), other.namespace()].map(|it| it.number());
        assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        let again = other.in_namespace("main", 1).await.unwrap();
        assert_eq!(*again.namespace(), first);
        let owner = other.begin().await.unwrap();
        assert_eq!(owner.txn().namespace(), other.namespace());
    }
}

// I15.
#[tokio::test]
async fn a_database_that_gives_durability_up_is_refused_unless_that_is_accepted() {
    let memory = DatabaseOptions::new("sqlite::memory:");
    let error = Database::open(memory.clone()).await.unwrap_err();
    let OpenError::NotDurable(NotDurable { setting, value, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((*setting, &**value), ("journal_mode", "memory"));
    assert!(error.to_string().contains("accept_loss"));
    // It is let in, and has no tables.
    let error = Database::open(memory.accept_loss()).await.unwrap_err();
    assert!(matches!(error, OpenError::NotMigrated { .. }), "{error}");

    let Some(test) = TestDatabase::postgres().await else { return };
    let off = format!("{}%20-csynchronous_commit%3Doff", test.url());
    let error = Database::open(&*off).await.unwrap_err();
    let OpenError::NotDurable(NotDurable { setting, .. }) = &error else { panic!("{error}") };
    assert_eq!(*setting, "synchronous_commit");
    Database::open(DatabaseOptions::new(off).accept_loss()).await.unwrap();
}

#[tokio::test]
async fn connections_have_the_settings_that_matter() {
    let test = TestDatabase::sqlite().await;
    assert_eq!(test.value::<String>("PRAGMA journal_mode").await, "wal");
    assert_eq!(test.value::<i32>("PRAGMA synchronous").await, 2);
    assert_eq!(test.value::<i32>("PRAGMA busy_timeout").await, 5_000);

    let Some(test) = TestDatabase::postgres().await else { return };
    for (setting, value) in [
        ("default_transaction_isolation", "read committed"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "30s"),
        ("idle_in_transaction_session_timeout", "1min"),
        ("application_name", "tidegate"),
    ] {
        assert_eq!(test.value::<String>(&format!("SHOW {setting}")).await, value, "{setting}");
    }
}

#[tokio::test]
async fn a_connection_that_was_found_dead_is_replaced() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let mut options = test.options.clone();
    options.max_connections = 1;
    let database = Database::open(options).await.unwrap();
    let own = database.connection();
    for _ in 0..3 {
        let pid = "SELECT pg_backend_pid()";
        let statement = sea_orm::Statement::from_string(own.get_database_backend(), pid);
        let row = own.query_one_raw(statement).await.unwrap().unwrap();
        let pid: i32 = row.try_get_by_index(0).unwrap();
        test.execute(&format!("SELECT pg_terminate_backend({pid}, 5000)")).await;
        let owner = database.begin().await.unwrap();
        owner.txn().execute_unprepared("SELECT 1").await.unwrap();
        owner.commit().await.unwrap();
    }
}

// N1: a text says nothing, and a code says all.
#[tokio::test]
async fn errors_are_known_by_their_code_in_every_language() {
    let Some(test) = TestDatabase::postgres().await else { return };
    for (code, text, class) in [
        ("23505", "doppelter Schlüsselwert verletzt Unique-Constraint", Class::Poison),
        ("40001", "duplicate key value violates unique constraint", Class::Transient),
        ("57014", "отмена оператора из-за превышения времени", Class::Transient),
        ("42501", "could not serialize access", Class::Fatal),
    ] {
        let raise = format!("DO $$ BEGIN RAISE '{text}' USING ERRCODE = '{code}'; END $$");
        let error = test.connection().execute_unprepared(&raise).await.unwrap_err();
        assert_eq!(EffectError::from(error).class(), class, "{code}");
    }
}

// ===== what is never shown =====

const SECRET: &str = "hunter2";

/// Each way in which an error may be shown.
fn shown(error: &OpenError) -> String {
    let mut shown = format!("{error} {error:?} {error:#?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        shown.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    shown
}

#[tokio::test]
async fn errors_show_no_password() {
    for url in [
        "postgres://user:hunter2@127.0.0.1:1/db",
        "postgres://user:hunter2@127.0.0.1:port/db",
        "postgres://user@127.0.0.1:1/db?password=hunter2&sslmode=nonsense",
        "mysql://user:hunter2@127.0.0.1/db",
        "user:hunter2@127.0.0.1/db",
        "host=127.0.0.1 password=hunter2",
    ] {
        let mut options = DatabaseOptions::new(url);
        options.acquire_timeout = std::time::Duration::from_millis(100);
        assert!(!format!("{options:?}").contains(SECRET), "{url}");
        let error = Database::open(options.clone()).await.unwrap_err();
        assert!(!shown(&error).contains(SECRET), "{url}: {error:?}");
        let error = Database::migrate(options).await.unwrap_err();
        assert!(!shown(&error).contains(SECRET), "{url}: {error:?}");
    }
}

/// Keeps what is written to a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics while it holds this").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_show_no_password_at_any_level() {
    let Some(test) = TestDatabase::postgres().await else { return };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || writer.clone())
        .finish();
    let (user, host) = test.url().split_once('@').expect("a user logs in");
    let (user, secret) = match user.rsplit_once(':') {
        Some((user, secret)) if !secret.starts_with("//") => (user, secret),
        _ => (user, SECRET),
    };
    let url = format!("{user}:{secret}@{host}");
    let guard = tracing::subscriber::set_default(subscriber);
    let database = Database::open(&*url).await.unwrap();
    database.begin().await.unwrap().commit().await.unwrap();
    assert!(!format!("{database:?}").contains(secret));
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("connect"), "something is logged");
    assert!(!log.contains(secret));
}
