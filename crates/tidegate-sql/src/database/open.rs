//! Opening a database: what must be so before anything is written to it.

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, Statement, TryGetable, Value};

use super::DatabaseOptions;
use crate::{dialect::Dialect, schema};

/// A database could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no database that is known.
    #[error("`{url}` does not begin with `postgres://` or `sqlite:`")]
    UnknownScheme {
        /// The URL, without its password.
        url: String,
    },
    /// The crate was built without that database.
    #[error("this build lacks the feature `{feature}` of `tidegate-sql`")]
    NoDriver {
        /// The feature.
        feature: &'static str,
    },
    /// It cannot be reached, or lets nobody in.
    #[error("cannot connect to {url}")]
    Connect {
        /// The URL, without its password.
        url: String,
        /// Why.
        source: DbErr,
    },
    /// It failed while it was asked about itself.
    #[error("cannot tell how the database is set up")]
    Query(#[from] DbErr),
    /// It may lose what it committed.
    #[error(transparent)]
    NotDurable(#[from] NotDurable),
    /// It has no tables of Tidegate, or has lost some.
    #[error(
        "the database has no table `{table}`: run `Database::migrate`, the migrations of `tidegate_sql::migration`, or the SQL of `tidegate_sql::schema`"
    )]
    NotMigrated {
        /// The first one that is missing.
        table: &'static str,
    },
    /// Its tables are those of an older release.
    #[error(
        "the database has tables of version {found}, and this release needs version {needed}: run `Database::migrate`, or the newer migrations"
    )]
    Older {
        /// Their version.
        found: i32,
        /// The version of this release.
        needed: i32,
    },
    /// Its tables are those of a newer release.
    #[error(
        "the database has tables of version {found}, and this release knows none after {known}: run a newer release of the program"
    )]
    Newer {
        /// Their version.
        found: i32,
        /// The version of this release.
        known: i32,
    },
    /// The tables could not be created.
    #[error("cannot create the tables")]
    Migrate(#[source] DbErr),
}

/// The database does not promise that what it committed is durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the database runs with {setting} = {value}, which may lose what it committed: change that, or set `DatabaseOptions::accept_loss`"
)]
#[non_exhaustive]
pub struct NotDurable {
    /// Which setting gives durability up.
    pub setting: &'static str,
    /// What it is set to.
    pub value: String,
}

// ===== impl NotDurable =====

impl NotDurable {
    /// Looks at the settings that decide it.
    pub(super) async fn check(
        connection: &DatabaseConnection,
        dialect: Dialect,
    ) -> Result<(), OpenError> {
        let refused: &[(&'static str, &str, &[&str])] = match dialect {
            Dialect::Postgres => &[
                ("fsync", "SELECT current_setting('fsync')", &["off"]),
                ("synchronous_commit", "SELECT current_setting('synchronous_commit')", &["off"]),
            ],
            Dialect::Sqlite => &[
                // Levels 0 and 1 lose what a power cut meets.
                (
                    "synchronous",
                    "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous",
                    &["0", "1"],
                ),
                (
                    "journal_mode",
                    "SELECT journal_mode FROM pragma_journal_mode",
                    &["memory", "off"],
                ),
            ],
        };
        for &(setting, query, values) in refused {
            let value: String = value(connection, query, []).await?;
            if values.contains(&value.as_str()) {
                return Err(Self { setting, value }.into());
            }
        }
        Ok(())
    }
}

/// Checks that the tables are there, and of the version that is known.
pub(super) async fn check_schema(
    connection: &DatabaseConnection,
    dialect: Dialect,
) -> Result<(), OpenError> {
    for table in schema::TABLES {
        if !has_table(connection, dialect, table).await? {
            return Err(OpenError::NotMigrated { table });
        }
    }
    match version(connection).await? {
        schema::VERSION => Ok(()),
        found if found < schema::VERSION => {
            Err(OpenError::Older { found, needed: schema::VERSION })
        }
        found => Err(OpenError::Newer { found, known: schema::VERSION }),
    }
}

/// Brings the tables to the version that is known.
///
/// One transaction: all of it or nothing. On PostgreSQL, programs that start at
/// the same time wait for each other.
pub(crate) async fn migrate(
    connection: &impl ConnectionTrait,
    dialect: Dialect,
) -> Result<(), OpenError> {
    if dialect == Dialect::Postgres {
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        connection.execute_unprepared(&lock).await?;
    }
    if has_table(connection, dialect, schema::TABLES[0]).await? {
        // There has been one version so far: nothing to do for an older one.
        return match version(connection).await? {
            found if found > schema::VERSION => {
                Err(OpenError::Newer { found, known: schema::VERSION })
            }
            _ => Ok(()),
        };
    }
    connection.execute_unprepared(dialect.schema()).await.map_err(OpenError::Migrate)?;
    Ok(())
}

// "tidegate", as PostgreSQL's key of an advisory lock.
const MIGRATION_LOCK: i64 = i64::from_be_bytes(*b"tidegate");

async fn has_table(
    connection: &impl ConnectionTrait,
    dialect: Dialect,
    table: &str,
) -> Result<bool, DbErr> {
    let query = match dialect {
        Dialect::Postgres => "SELECT count(to_regclass($1))",
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1",
    };
    Ok(value::<i64, 1>(connection, query, [table.into()]).await? > 0)
}

async fn version(connection: &impl ConnectionTrait) -> Result<i32, DbErr> {
    value(connection, "SELECT coalesce(max(version), 0) FROM tidegate_schema", []).await
}

/// The one value that a query answers with.
pub(super) async fn value<V: TryGetable, const N: usize>(
    connection: &impl ConnectionTrait,
    query: &str,
    parameters: [Value; N],
) -> Result<V, DbErr> {
    let backend = connection.get_database_backend();
    let statement = Statement::from_sql_and_values(backend, query, parameters);
    let row = connection.query_one_raw(statement).await?;
    row.ok_or_else(|| DbErr::RecordNotFound(query.to_owned()))?.try_get_by_index(0)
}

/// Connects, with the settings that Tidegate needs.
pub(super) async fn connect(
    options: &DatabaseOptions,
) -> Result<(DatabaseConnection, Dialect), OpenError> {
    let url = options.url();
    let dialect = if url.starts_with("sqlite:") {
        Dialect::Sqlite
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Dialect::Postgres
    } else {
        return Err(OpenError::UnknownScheme { url: options.redacted().to_string() });
    };
    let connect = match dialect {
        Dialect::Postgres => super::connect::postgres(options),
        Dialect::Sqlite => super::connect::sqlite(options),
    };
    let failed = |source| OpenError::Connect { url: options.redacted().to_string(), source };
    let connection = sea_orm::Database::connect(connect?).await.map_err(failed)?;
    Ok((connection, dialect))
}
