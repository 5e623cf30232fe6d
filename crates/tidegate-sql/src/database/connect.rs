//! How SeaORM is told to connect.
//!
//! SeaORM's own options show the URL when they are printed, and its tracing
//! prints them. So they get a URL without a password, and the driver gets the
//! real one beside it.

use sea_orm::ConnectOptions;

use super::{DatabaseOptions, OpenError};

#[cfg(feature = "postgres")]
pub(super) fn postgres(options: &DatabaseOptions) -> Result<ConnectOptions, OpenError> {
    use sea_orm::{
        DbErr, RuntimeErr,
        sqlx::{ConnectOptions as _, postgres::PgConnectOptions},
    };

    let driver: PgConnectOptions =
        options.url().parse().map_err(|error: sea_orm::sqlx::Error| {
            let source = DbErr::Conn(RuntimeErr::SqlxError(error.into()));
            OpenError::Connect { url: options.redacted().to_string(), source }
        })?;
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    // Sent with the start of a connection: no round trip of their own.
    let driver = driver
        .application_name(&options.application_name)
        .options([
            ("default_transaction_isolation", "read committed".to_owned()),
            ("lock_timeout", millis(options.lock_timeout)),
            ("statement_timeout", millis(options.statement_timeout)),
            ("idle_in_transaction_session_timeout", millis(options.idle_in_transaction_timeout)),
        ])
        .disable_statement_logging();
    let mut connect = ConnectOptions::new("postgres://localhost");
    connect
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire_if_idle_for(options.idle_test)
        .sqlx_logging(false)
        .map_sqlx_postgres_opts(move |_| driver.clone());
    Ok(connect)
}

#[cfg(not(feature = "postgres"))]
pub(super) fn postgres(_: &DatabaseOptions) -> Result<ConnectOptions, OpenError> {
    Err(OpenError::NoDriver { feature: "postgres" })
}

#[cfg(feature = "sqlite")]
pub(super) fn sqlite(options: &DatabaseOptions) -> Result<ConnectOptions, OpenError> {
    use sea_orm::sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};

    let mut connect = ConnectOptions::new(options.url());
    let busy = options.busy_timeout;
    // One connection, so that a writer waits for its turn in the pool, in
    // order, and not in the busy handler, where the last one may wait for ever.
    connect
        .max_connections(1)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        // A database in memory goes with its last connection.
        .idle_timeout(None)
        .max_lifetime(None)
        .sqlx_logging(false)
        .map_sqlx_sqlite_opts(move |sqlite| {
            sqlite
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(busy)
        });
    Ok(connect)
}

#[cfg(not(feature = "sqlite"))]
pub(super) fn sqlite(_: &DatabaseOptions) -> Result<ConnectOptions, OpenError> {
    Err(OpenError::NoDriver { feature: "sqlite" })
}
