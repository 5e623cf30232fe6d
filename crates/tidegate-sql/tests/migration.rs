//! The tables through an application's own migrator.
#![cfg(feature = "migration")]

mod common;

use sea_orm::ConnectionTrait as _;
use sea_orm_migration::{MigrationTrait, MigratorTrait, async_trait};
use tidegate_sql::{Database, OpenError, schema};

use crate::common::TestDatabase;

struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        tidegate_sql::migration::migrations()
    }
}

#[tokio::test]
async fn the_tables_are_created_and_dropped_by_a_migrator() {
    for test in TestDatabase::each().await {
        // Those that `Database::migrate` made are taken over as they are.
        Migrator::up(test.connection(), None).await.unwrap();
        assert_eq!(test.count("tidegate_namespace").await, 1);
        Migrator::down(test.connection(), None).await.unwrap();
        let error = Database::open(test.options.clone()).await.unwrap_err();
        assert!(matches!(error, OpenError::NotMigrated { .. }), "{error}");
        for table in schema::TABLES {
            let select = format!("SELECT 1 FROM {table}");
            test.connection().execute_unprepared(&select).await.unwrap_err();
        }
        Migrator::up(test.connection(), None).await.unwrap();
        Database::open(test.options.clone()).await.unwrap();
        Migrator::refresh(test.connection()).await.unwrap();
        Database::open(test.options.clone()).await.unwrap();
    }
}
