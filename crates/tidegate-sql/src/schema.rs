//! The tables, as plain SQL.
//!
//! Three ways lead to them: [`Database::migrate`](crate::Database::migrate)
//! from a program, the migrations of the feature `migration` from an
//! application's own migrator, or these texts from whatever else applies SQL.

/// The version of the tables that this release works with.
pub const VERSION: i32 = 1;

/// Creates the tables in a PostgreSQL database that has none.
pub const POSTGRES: &str = include_str!("schema/postgres.sql");

/// Creates the tables in a SQLite database that has none.
pub const SQLITE: &str = include_str!("schema/sqlite.sql");

/// The tables, in the order in which they are created.
pub const TABLES: [&str; 8] = [
    "tidegate_schema",
    "tidegate_namespace",
    "tidegate_source",
    "tidegate_inbox",
    "tidegate_entity",
    "tidegate_parked",
    "tidegate_dead_letter",
    "tidegate_owner",
];
