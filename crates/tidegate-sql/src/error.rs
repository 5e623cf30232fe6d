use std::convert::Infallible;

use sea_orm::{DbErr, RuntimeErr};
use tidegate_core::{BoxError, Class, Culprit, Error};

/// How an effect fails.
///
/// An effect may return any error that converts into this one. [`DbErr`]
/// does, classed by its code; an application's own error gets one `From` that
/// says what is to be done about it:
///
/// ```
/// use tidegate_sql::{DbErr, EffectError};
///
/// #[derive(Debug, thiserror::Error)]
/// enum TransferError {
///     #[error(transparent)]
///     Database(#[from] DbErr),
///     #[error("no account {0}")]
///     NoAccount(u64),
/// }
///
/// impl From<TransferError> for EffectError {
///     fn from(error: TransferError) -> Self {
///         match error {
///             TransferError::Database(error) => error.into(),
///             error @ TransferError::NoAccount(_) => Self::poison(error),
///         }
///     }
/// }
/// ```
///
/// It is a type of this crate, and not [`Error`], because of the orphan rule:
/// nobody could write `From<DbErr> for tidegate_core::Error`.
#[derive(Debug)]
pub struct EffectError {
    error: Error,
    // Which of the values is at fault, until it is known which record that is.
    value: Option<usize>,
}

// ===== impl EffectError =====

impl EffectError {
    /// Trying again may succeed.
    pub fn transient(source: impl Into<BoxError>) -> Self {
        Error::new(Class::Transient, source).into()
    }

    /// This record can never be applied.
    pub fn poison(source: impl Into<BoxError>) -> Self {
        Error::new(Class::Poison, source).into()
    }

    /// No record can be applied until a person acts.
    pub fn fatal(source: impl Into<BoxError>) -> Self {
        Error::new(Class::Fatal, source).into()
    }

    /// Blames one of the values that an effect on a batch was given, by its
    /// index among them.
    ///
    /// The queue then takes the batch apart there instead of in the middle. An
    /// effect on single values has no need of it.
    #[must_use]
    pub fn with_value(self, index: usize) -> Self {
        Self { value: Some(index), ..self }
    }

    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.error.class()
    }

    /// The error of a batch whose values came from these records.
    pub(crate) fn among(self, culprit: impl FnOnce(usize) -> Option<Culprit>) -> Error {
        match self.value.and_then(culprit) {
            Some(culprit) => self.error.with_culprit(culprit),
            None => self.error,
        }
    }
}

impl From<DbErr> for EffectError {
    fn from(error: DbErr) -> Self {
        Error::new(class(&error), error).into()
    }
}

impl From<Error> for EffectError {
    fn from(error: Error) -> Self {
        Self { error, value: None }
    }
}

impl From<Infallible> for EffectError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<EffectError> for Error {
    fn from(error: EffectError) -> Self {
        error.error
    }
}

/// Whether an error says that the database cannot be reached: there is no
/// connection to be had, or one broke.
#[must_use]
pub fn is_unreachable(error: &DbErr) -> bool {
    matches!(error, DbErr::ConnectionAcquire(_) | DbErr::Conn(_)) || is_lost(error)
}

/// Whether an error says that a connection broke.
pub(crate) fn is_lost(error: &DbErr) -> bool {
    match error {
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => codes::is_lost(error),
        // What a task of ours that was ended leaves.
        DbErr::Conn(RuntimeErr::Internal(_)) => true,
        _ => false,
    }
}

/// What SeaORM's error asks for.
///
/// Its variants say where it arose and little more (`BEGIN` and `COMMIT` fail
/// as `Query`); the database's code decides.
fn class(error: &DbErr) -> Class {
    match error {
        DbErr::ConnectionAcquire(_) => Class::Transient,
        DbErr::Conn(error) | DbErr::Exec(error) | DbErr::Query(error) => runtime_class(error),
        // What the record refers to is not there.
        DbErr::RecordNotFound(_) | DbErr::RecordNotInserted | DbErr::RecordNotUpdated => {
            Class::Poison
        }
        // A value or a schema that the code does not expect, or an error that
        // says nothing: to bury records for that would empty the topic.
        _ => Class::Fatal,
    }
}

fn runtime_class(error: &RuntimeErr) -> Class {
    match error {
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        RuntimeErr::SqlxError(error) => codes::sqlx_class(error),
        // SeaORM's own complaint about a connection.
        _ => Class::Transient,
    }
}

/// Classes by the database's codes, and by nothing else: its texts come in its
/// own language.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod codes {
    use sea_orm::sqlx::{self, error::DatabaseError};
    use tidegate_core::Class;

    pub(super) fn sqlx_class(error: &sqlx::Error) -> Class {
        match error {
            sqlx::Error::Database(error) => database_class(&**error),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Class::Transient,
            _ => Class::Fatal,
        }
    }

    /// Whether a connection broke: of a network, or of a server that ended it.
    pub(super) fn is_lost(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default();
                matches!(&*code, "57P01" | "57P02" | "57P03" | "25P03") || code.starts_with("08")
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => true,
            _ => false,
        }
    }

    fn database_class(error: &dyn DatabaseError) -> Class {
        let code = error.code().unwrap_or_default();
        #[cfg(feature = "postgres")]
        if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
            return postgres_class(&code);
        }
        #[cfg(feature = "sqlite")]
        if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
            return code.parse().map_or(Class::Fatal, sqlite_class);
        }
        Class::Fatal
    }

    /// By SQLSTATE; its first two characters are the class.
    ///
    /// PostgreSQL's documentation, appendix A.
    #[cfg(feature = "postgres")]
    pub(super) fn postgres_class(code: &str) -> Class {
        match code {
            // A lock, a timeout, a shutdown, or a server that became read-only.
            "25006" | "25P03" | "55P03" | "57014" | "57P01" | "57P02" | "57P03" => Class::Transient,
            // The connection, insufficient resources, serialization and deadlock.
            _ if ["08", "40", "53"].iter().any(|class| code.starts_with(class)) => Class::Transient,
            // The data, a constraint, a raised exception.
            _ if ["22", "23", "P0"].iter().any(|class| code.starts_with(class)) => Class::Poison,
            // The schema, the permissions, the program.
            _ => Class::Fatal,
        }
    }

    /// By the extended result code, whose low byte is the primary one.
    ///
    /// SQLite's documentation, "Result and Error Codes".
    #[cfg(feature = "sqlite")]
    pub(super) fn sqlite_class(code: u32) -> Class {
        match code & 0xff {
            // Busy, locked, read-only, interrupted.
            5 | 6 | 8 | 9 => Class::Transient,
            // Too big, a constraint, a wrong type.
            18..=20 => Class::Poison,
            _ => Class::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, EffectError};

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_errors_are_classed_by_their_sqlstate() {
        for (code, class) in [
            ("08006", Class::Transient),
            ("25006", Class::Transient),
            ("25P03", Class::Transient),
            ("40001", Class::Transient),
            ("40P01", Class::Transient),
            ("53300", Class::Transient),
            ("55P03", Class::Transient),
            ("57014", Class::Transient),
            ("57P01", Class::Transient),
            ("22003", Class::Poison),
            ("23502", Class::Poison),
            ("23505", Class::Poison),
            ("P0001", Class::Poison),
            ("25P02", Class::Fatal),
            ("42501", Class::Fatal),
            ("42P01", Class::Fatal),
        ] {
            assert_eq!(super::codes::postgres_class(code), class, "{code}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_errors_are_classed_by_their_primary_code() {
        for (code, class) in [
            (5, Class::Transient),
            (6, Class::Transient),
            (8, Class::Transient),
            (261, Class::Transient),
            (517, Class::Transient),
            (275, Class::Poison),
            (1555, Class::Poison),
            (2067, Class::Poison),
            (1, Class::Fatal),
            (11, Class::Fatal),
            (13, Class::Fatal),
        ] {
            assert_eq!(super::codes::sqlite_class(code), class, "{code}");
        }
    }

    #[test]
    fn an_error_that_says_nothing_stops_the_partition() {
        let error = EffectError::from(sea_orm::DbErr::Custom("no".to_owned()));
        assert_eq!(error.class(), Class::Fatal);
    }
}
