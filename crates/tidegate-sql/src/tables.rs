//! What the inbox and the sequencer keep in the database.
//!
//! [`inbox`](crate::inbox) and [`sequencer`](crate::sequencer) are built on these
//! functions; an application has no need of them. Each is one statement, or says how many it
//! is. They decide nothing.

pub mod entities;
pub mod letters;
pub mod markers;
pub(crate) mod owners;
pub mod parked;

use std::time::Duration;

use sea_orm::{DbBackend, DbErr, QueryResult, Statement, TryGetable, Value};
pub use tidegate_core::Mark;
use tidegate_core::{Fingerprint, MessageId, TopicPartition};

/// An age as the parameter of a statement. What is older than a hundred years
/// is as old as that: no database reckons with all that a `Duration` holds.
fn millis(age: Duration) -> i64 {
    const CENTURY: i64 = 36_525 * 24 * 60 * 60 * 1000;
    i64::try_from(age.as_millis()).unwrap_or(CENTURY).min(CENTURY)
}

/// A statement about a partition, of whatever `of` is: `$1` to `$3`, and then
/// what there is `more`.
fn of_partition<const N: usize>(
    backend: DbBackend,
    of: Value,
    partition: &TopicPartition,
    sql: &str,
    more: [Value; N],
) -> Statement {
    let TopicPartition { topic, partition } = partition;
    let place = [of, (**topic).into(), (*partition).into()];
    Statement::from_sql_and_values(backend, sql, place.into_iter().chain(more).collect::<Vec<_>>())
}

/// The columns of a row, one after the other.
struct Columns<'a> {
    row: &'a QueryResult,
    next: usize,
}

// ===== impl Columns =====

impl<'a> Columns<'a> {
    fn of(row: &'a QueryResult) -> Self {
        Self { row, next: 0 }
    }

    fn next<V: TryGetable>(&mut self) -> Result<V, DbErr> {
        self.next += 1;
        self.row.try_get_by_index(self.next - 1)
    }

    fn mark(&mut self) -> Result<Mark, DbErr> {
        self.optional_mark()?.ok_or_else(|| DbErr::Type("a message id is missing".to_owned()))
    }

    fn optional_mark(&mut self) -> Result<Option<Mark>, DbErr> {
        let (id, fingerprint) = (self.digest()?, self.digest()?);
        Ok(id.zip(fingerprint).map(|(id, fingerprint)| Mark {
            id: MessageId::from(id),
            fingerprint: Fingerprint::from(fingerprint),
        }))
    }

    fn digest(&mut self) -> Result<Option<[u8; 16]>, DbErr> {
        let bytes: Option<Vec<u8>> = self.next()?;
        let digest = bytes.map(|bytes| {
            bytes.try_into().map_err(|bytes: Vec<u8>| {
                DbErr::Type(format!("{} bytes in place of 16", bytes.len()))
            })
        });
        digest.transpose()
    }
}
