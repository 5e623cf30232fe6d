//! The tables as migrations, for an application's own migrator.
//!
//! ```
//! use sea_orm_migration::prelude::*;
//!
//! struct Migrator;
//!
//! impl MigratorTrait for Migrator {
//!     fn migrations() -> Vec<Box<dyn MigrationTrait>> {
//!         let mut migrations = tidegate_sql::migration::migrations();
//!         migrations.extend(own_migrations());
//!         migrations
//!     }
//! }
//!
//! fn own_migrations() -> Vec<Box<dyn MigrationTrait>> {
//!     Vec::new()
//! }
//! ```

use sea_orm::{ConnectionTrait as _, DbErr};
use sea_orm_migration::{MigrationName, MigrationTrait, SchemaManager, async_trait};

use crate::{database::open, dialect::Dialect, schema};

/// Creates the tables of version 1, and drops them.
///
/// Tables that are there already are left as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateTables;

/// All migrations, in their order.
#[must_use]
pub fn migrations() -> Vec<Box<dyn MigrationTrait>> {
    vec![Box::new(CreateTables)]
}

impl MigrationName for CreateTables {
    fn name(&self) -> &'static str {
        "m0001_tidegate_create_tables"
    }
}

#[expect(elided_lifetimes_in_paths, reason = "the trait is declared so, and the macro is exact")]
#[async_trait::async_trait]
impl MigrationTrait for CreateTables {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let connection = manager.get_connection();
        let backend = connection.get_database_backend();
        let dialect = Dialect::of(backend).ok_or(DbErr::BackendNotSupported {
            db: backend.as_str(),
            ctx: "the tables of Tidegate",
        })?;
        open::migrate(connection, dialect).await.map_err(|error| match error {
            open::OpenError::Query(error) | open::OpenError::Migrate(error) => error,
            other => DbErr::Migration(other.to_string()),
        })
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in schema::TABLES.iter().rev() {
            let drop = format!("DROP TABLE IF EXISTS {table}");
            manager.get_connection().execute_unprepared(&drop).await?;
        }
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        // All of it or nothing, on SQLite too.
        Some(true)
    }
}
