//! What differs from database to database: the statements that every batch
//! runs, and a few words of the others.
//!
//! A statement has one text for every batch size, so that it is prepared once
//! a connection. Another database is another file here, and an arm in
//! [`Dialect`].

mod postgres;
mod sqlite;

use sea_orm::{DbBackend, Statement};
use tidegate_core::TopicPartition;

use crate::{
    schema,
    tables::{
        entities::{Run, Standing},
        markers::Marker,
        parked::{Parking, Place},
    },
};

/// A database that Tidegate speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Sqlite,
}

/// The statements of one database.
pub(crate) trait Statements: Send + Sync {
    /// Reads where a partition is pruned, keeping that from being changed until
    /// the transaction ends, and claims the ids of markers that lie outside of
    /// it. The markers are sorted by id, since all who claim lock in this order.
    ///
    /// Answers with `low`, `floor`, `topic_id`, and `id`, `fp` of a message that
    /// was not claimed; one row for each of those, or one with nulls. If `fp` is
    /// null, it takes [`seen`](Self::seen) to tell whether it was claimed before.
    /// No row: the partition is not there.
    fn claim(&self, ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> Statement;

    /// As [`claim`](Self::claim), and may violate a unique constraint where a
    /// message was claimed before or is there twice, if that costs less.
    fn claim_new(&self, ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> Statement {
        self.claim(ns, partition, markers)
    }

    /// Reads the fingerprints of messages: `id`, `fp`.
    fn seen(&self, ns: i32, ids: &[&[u8]]) -> Statement;

    /// Locks entities, in their order, and advances those that stand where
    /// their run begins. An entity that is not there stands at `base`.
    ///
    /// Answers with the place among the runs, from 1 on, of each that did not
    /// advance.
    fn stand(&self, ns: i32, base: i64, runs: &[Run<'_>]) -> Statement;

    /// Reads where entities stand, those that are there: `ent`, `rev`, `held`,
    /// `last_id`, `last_fp`. Nothing was applied last at `base`.
    fn standing(&self, ns: i32, base: i64, entities: &[&[u8]]) -> Statement;

    /// Writes where entities stand that are locked.
    fn settle(&self, ns: i32, standings: &[(&[u8], &Standing)]) -> Statement;

    /// Reads what is parked of entities: `ent`, `rev`, `id`, `fp`, and whether
    /// it is withheld, as a number.
    fn parked(&self, ns: i32, entities: &[&[u8]]) -> Statement;

    /// Parks records.
    fn park(&self, ns: i32, rows: &[Parking<'_>]) -> Statement;

    /// Removes parked records, and answers with them: `ent`, `rev`, `id`, `fp`,
    /// `topic`, `part`, `record_offset`, `record_ts`, `record_key`, `payload`,
    /// `headers`.
    fn take(&self, ns: i32, places: &[Place<'_>]) -> Statement;
}

// ===== impl Dialect =====

impl Dialect {
    #[cfg(feature = "migration")]
    pub(crate) fn of(backend: DbBackend) -> Option<Self> {
        match backend {
            DbBackend::Postgres => Some(Self::Postgres),
            DbBackend::Sqlite => Some(Self::Sqlite),
            _ => None,
        }
    }

    pub(crate) fn backend(self) -> DbBackend {
        match self {
            Self::Postgres => DbBackend::Postgres,
            Self::Sqlite => DbBackend::Sqlite,
        }
    }

    pub(crate) fn statements(self) -> &'static dyn Statements {
        match self {
            Self::Postgres => &postgres::Postgres,
            Self::Sqlite => &sqlite::Sqlite,
        }
    }

    /// Creates the tables.
    pub(crate) fn schema(self) -> &'static str {
        match self {
            Self::Postgres => schema::POSTGRES,
            Self::Sqlite => schema::SQLITE,
        }
    }

    /// A column `at` as milliseconds since the Unix epoch.
    pub(crate) fn at_millis(self) -> &'static str {
        match self {
            Self::Postgres => "CAST(extract(epoch FROM at) * 1000 AS bigint)",
            Self::Sqlite => "at",
        }
    }

    /// The time that lies a number of milliseconds, the parameter, before now.
    pub(crate) fn ago(self, parameter: &str) -> String {
        match self {
            Self::Postgres => {
                format!("now() - CAST({parameter} AS bigint) * interval '1 millisecond'")
            }
            Self::Sqlite => {
                format!("CAST(unixepoch('subsec') * 1000 AS INTEGER) - {parameter}")
            }
        }
    }

    /// Ends a `SELECT` whose rows nobody else is to change. In SQLite, a
    /// transaction that may write is alone.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Postgres => " FOR UPDATE",
            Self::Sqlite => "",
        }
    }

    /// Ends a `SELECT` whose rows may be read by others, and not be changed.
    pub(crate) fn for_share(self) -> &'static str {
        match self {
            Self::Postgres => " FOR SHARE",
            Self::Sqlite => "",
        }
    }
}
