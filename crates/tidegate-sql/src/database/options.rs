use std::{fmt, time::Duration};

use super::redact::Redacted;

/// How a database is opened.
///
/// Made from a URL, `postgres://..` or `sqlite://..`, with defaults for the
/// rest; the fields may be changed before it is given to
/// [`Database::open`](crate::Database::open).
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_sql::DatabaseOptions;
///
/// let mut options = DatabaseOptions::new("postgres://ledger:secret@db.example/ledger")
///     .with_namespace("ledger", 2);
/// options.lock_timeout = Duration::from_secs(2);
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
///
/// SQLite has one connection, since it has one writer, and runs with a
/// write-ahead log and `synchronous=FULL`.
#[derive(Clone)]
#[non_exhaustive]
pub struct DatabaseOptions {
    url: String,
    /// The target of effects: what a rebuild would build anew. `main` by
    /// default.
    pub target: String,
    /// The generation of the target. 1 by default; a rebuild takes the next.
    pub generation: i64,
    /// The most connections of PostgreSQL. 10 by default.
    ///
    /// A partition uses one for each of its lanes that has a batch in hand. One
    /// or two more than that keep the lanes from waiting for connections that
    /// are being given back.
    pub max_connections: u32,
    /// How long to wait for a connection, a new one included. 5 s by default.
    ///
    /// On SQLite, this is what ends an effect that asks for a second connection
    /// while it holds the only one.
    pub acquire_timeout: Duration,
    /// After how long without use a connection of PostgreSQL is tested before it
    /// is used again. 30 s by default.
    pub idle_test: Duration,
    /// How long a statement of PostgreSQL waits for a lock. 5 s by default.
    pub lock_timeout: Duration,
    /// How long a statement of PostgreSQL runs. 30 s by default.
    ///
    /// A statement is not cancelled when its future is dropped: this is what
    /// bounds how long it then goes on.
    pub statement_timeout: Duration,
    /// How long a transaction of PostgreSQL may be open without a statement
    /// that runs. 60 s by default.
    ///
    /// An effect that waits for something else than the database may need more.
    /// It bounds how long the locks of a process that was stopped in the middle
    /// of a transaction keep its successor waiting.
    pub idle_in_transaction_timeout: Duration,
    /// How long SQLite waits for another process that writes. 5 s by default.
    pub busy_timeout: Duration,
    /// How the connections of PostgreSQL name themselves. `tidegate` by default.
    pub application_name: String,
    /// Opens a database although it may lose what it has committed: PostgreSQL
    /// with `fsync` or `synchronous_commit` off, SQLite in memory.
    ///
    /// After such a loss, records that were acknowledged have no effect, and
    /// nobody is told.
    pub accept_loss: bool,
}

// ===== impl DatabaseOptions =====

impl DatabaseOptions {
    /// The database of a URL, with defaults for the rest.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            target: "main".to_owned(),
            generation: 1,
            max_connections: 10,
            acquire_timeout: Duration::from_secs(5),
            idle_test: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(60),
            busy_timeout: Duration::from_secs(5),
            application_name: "tidegate".to_owned(),
            accept_loss: false,
        }
    }

    /// Works in this generation of this target.
    #[must_use]
    pub fn with_namespace(self, target: impl Into<String>, generation: i64) -> Self {
        Self { target: target.into(), generation, ..self }
    }

    /// Sets [`accept_loss`](Self::accept_loss).
    #[must_use]
    pub fn accept_loss(self) -> Self {
        Self { accept_loss: true, ..self }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL as it may be shown.
    pub(crate) fn redacted(&self) -> Redacted<'_> {
        Redacted(&self.url)
    }
}

impl From<&str> for DatabaseOptions {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for DatabaseOptions {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseOptions")
            .field("url", &format_args!("{}", self.redacted()))
            .field("target", &self.target)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
