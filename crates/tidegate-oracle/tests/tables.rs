//! What is written to the tables is read from them, on each database.

#![cfg(all(feature = "postgres", feature = "sqlite"))]

use std::{env, process};

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::install_default_drivers};
use tempfile::TempDir;
use tidegate_oracle::{
    Balance, Effect, Evidence, Floor, Marker, MessageId, Parked, Partition, Position, Queries,
    Tables, TablesFailure, ledger,
};

// The columns that the oracle reads of the layers' tables, as version 1 of
// their schema has them.
const SQLITE: &str = "
    CREATE TABLE tidegate_namespace (ns INTEGER PRIMARY KEY, target TEXT, generation INTEGER);
    CREATE TABLE tidegate_source (source INTEGER PRIMARY KEY, ns INTEGER NOT NULL,
        topic TEXT NOT NULL, part INTEGER NOT NULL, low INTEGER NOT NULL, floor INTEGER NOT NULL);
    CREATE TABLE tidegate_inbox (ns INTEGER NOT NULL, id BLOB NOT NULL, source INTEGER NOT NULL,
        record_offset INTEGER NOT NULL, PRIMARY KEY (ns, id)) STRICT, WITHOUT ROWID;
    CREATE TABLE tidegate_entity (ns INTEGER NOT NULL, ent BLOB NOT NULL, rev INTEGER NOT NULL);
    CREATE TABLE tidegate_parked (ns INTEGER NOT NULL, ent BLOB NOT NULL, rev INTEGER NOT NULL,
        topic TEXT NOT NULL, part INTEGER NOT NULL, record_offset INTEGER NOT NULL, withheld TEXT);
    CREATE TABLE tidegate_dead_letter (ns INTEGER NOT NULL, topic TEXT NOT NULL,
        part INTEGER NOT NULL, record_offset INTEGER NOT NULL);
    CREATE TABLE balance (account TEXT NOT NULL, amount INTEGER NOT NULL);
    INSERT INTO tidegate_namespace VALUES (7, 'it''s', 2), (8, 'other', 1);
    INSERT INTO tidegate_source VALUES (3, 7, 't', 1, 10, 20), (4, 8, 't', 1, 0, 0);
    INSERT INTO tidegate_inbox VALUES (7, x'000102030405060708090a0b0c0d0e0f', 3, 21),
        (8, x'00000000000000000000000000000001', 4, 1);
    INSERT INTO tidegate_entity VALUES (7, x'61', 5);
    INSERT INTO tidegate_parked VALUES (7, x'61', 8, 't', 1, 30, NULL),
        (7, x'62', 9, 't', 1, 31, 'a constraint');
    INSERT INTO tidegate_dead_letter VALUES (7, 't', 1, 40), (8, 't', 1, 41);
    INSERT INTO entry (id, account, revision, amount, topic, part, record_offset, worker, epoch)
        VALUES (255, 'a', 5, -3, 't', 1, 21, 'worker', 4);
    INSERT INTO balance VALUES ('a', -3);
";

async fn execute(url: &str, statements: &[&str]) {
    install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.expect("the database opens");
    for statement in statements {
        let statement = sqlx::raw_sql(AssertSqlSafe(*statement));
        statement.execute(&mut connection).await.expect("the statement is right");
    }
    connection.close().await.expect("nothing runs");
}

fn queries() -> Queries {
    let mut queries = Queries::of_namespace("it's", 2);
    queries.balances = Some("SELECT account AS entity, amount FROM balance".to_owned());
    queries
}

fn expected() -> Evidence {
    let partition = Partition::new("t", 1);
    let mut expected = Evidence::default();
    expected.effects = Some(vec![Effect {
        id: MessageId(255),
        entity: "a".to_owned(),
        revision: 5,
        amount: -3,
        place: partition.at(21),
        worker: "worker".to_owned(),
        epoch: 4,
        seq: 1,
    }]);
    let id = MessageId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
    expected.markers = Some(vec![Marker { id, place: partition.at(21) }]);
    expected.floors = vec![Floor { partition: partition.clone(), low: 10, floor: 20 }];
    expected.positions = Some(vec![Position { entity: "a".to_owned(), revision: 5 }]);
    let parked = |entity: &str, revision, offset, withheld| Parked {
        entity: entity.to_owned(),
        revision,
        place: partition.at(offset),
        withheld,
    };
    expected.parked = Some(vec![parked("a", 8, 30, false), parked("b", 9, 31, true)]);
    expected.buried = Some(vec![partition.at(40)]);
    expected.balances = Some(vec![Balance { entity: "a".to_owned(), amount: -3 }]);
    expected
}

#[tokio::test]
async fn the_tables_of_one_namespace_are_read() {
    let directory = TempDir::new().expect("there is room for a directory");
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("test.db").display());
    execute(&url, &[ledger::ENTRY_SQLITE, SQLITE]).await;

    let mut evidence = Evidence::default();
    Tables::new(url, queries()).read(&mut evidence).await.unwrap();
    assert_eq!(evidence, expected());
}

#[tokio::test]
async fn the_tables_are_read_from_postgresql_too() {
    let Ok(url) = env::var("TIDEGATE_DATABASE") else {
        eprintln!("skipped on PostgreSQL: TIDEGATE_DATABASE names none");
        return;
    };
    let schema = format!("oracle_{}", process::id());
    let own = format!("{url}?options[search_path]={schema}");
    let tables =
        SQLITE.replace("BLOB", "bytea").replace("x'", "'\\x").replace(" STRICT, WITHOUT ROWID", "");
    execute(&url, &[&format!("CREATE SCHEMA {schema}")]).await;
    execute(&own, &[ledger::ENTRY_POSTGRES, &tables]).await;

    let mut evidence = Evidence::default();
    let read = Tables::new(own, queries()).read(&mut evidence).await;
    execute(&url, &[&format!("DROP SCHEMA {schema} CASCADE")]).await;
    read.unwrap();
    assert_eq!(evidence, expected());
}

#[tokio::test]
async fn a_table_that_is_not_asked_for_is_not_part_of_the_evidence() {
    let directory = TempDir::new().expect("there is room for a directory");
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("test.db").display());
    let mut queries = Queries::none();
    queries.effects = Queries::default().effects;

    let mut evidence = Evidence::default();
    let tables = Tables::new(&url, queries);
    let failure = tables.read(&mut evidence).await.unwrap_err();
    assert_eq!(failure.to_string(), "the effects could not be read");
    assert!(matches!(failure, TablesFailure::Read { table: "effects", .. }));

    execute(&url, &[ledger::ENTRY_SQLITE]).await;
    tables.read(&mut evidence).await.unwrap();
    assert_eq!((evidence.effects, evidence.markers), (Some(Vec::new()), None));
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_said_to_be_so() {
    let tables = Tables::new("sqlite:///nowhere/at/all.db", Queries::default());
    let failure = tables.read(&mut Evidence::default()).await.unwrap_err();
    assert_eq!(failure.to_string(), "the database could not be reached");
}
