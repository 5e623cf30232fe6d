//! The tables of one experiment: a schema of its own.

use anyhow::{Context as _, Result};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tidegate::sql::Database;
use tidegate_oracle::ledger;
use tidegate_testkit::Place;

/// A schema with the ledger's table and the layers'.
pub(crate) struct Schema {
    server: String,
    name: String,
}

/// An effect as a report shows it.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct EffectAt {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) worker: String,
    pub(crate) epoch: i64,
    /// In milliseconds since the Unix epoch.
    pub(crate) at: i64,
}

// ===== impl Schema =====

impl Schema {
    pub(crate) async fn create(server: &str, name: &str) -> Result<Self> {
        let schema = Self { server: server.to_owned(), name: name.to_owned() };
        let mut connection = PgConnection::connect(server).await?;
        execute(&mut connection, &format!("CREATE SCHEMA {name}")).await?;
        connection.close().await?;
        Database::migrate(schema.url()).await.context("creating the layers' tables")?;
        schema.create_entries().await?;
        Ok(schema)
    }

    /// Makes the table of effects.
    pub(crate) async fn create_entries(&self) -> Result<()> {
        self.execute(ledger::ENTRY_POSTGRES).await?;
        // When, for reports; the oracle does not look at it.
        let at = "ALTER TABLE entry
            ADD COLUMN made_at timestamptz NOT NULL DEFAULT clock_timestamp()";
        self.execute(at).await
    }

    pub(crate) async fn drop(&self) -> Result<()> {
        let mut connection = PgConnection::connect(&self.server).await?;
        let drop = format!("SET lock_timeout = '5s'; DROP SCHEMA {} CASCADE", self.name);
        execute(&mut connection, &drop).await?;
        Ok(connection.close().await?)
    }

    /// The server, with this schema.
    pub(crate) fn url(&self) -> String {
        in_schema(&self.server, &self.name)
    }

    /// The same, through a proxy at that address.
    pub(crate) fn url_through(&self, proxy: std::net::SocketAddr) -> Result<String> {
        let (head, rest) = self.server.split_once('@').context("the URL has no user")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        Ok(in_schema(&format!("{head}@{proxy}{}", &rest[end..]), &self.name))
    }

    /// The server's address, for a proxy.
    pub(crate) fn authority(&self) -> Result<String> {
        let (_, rest) = self.server.split_once('@').context("the URL has no user")?;
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        Ok(if authority.contains(':') { authority.to_owned() } else { format!("{authority}:5432") })
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.url()).await.context("connecting to the database")
    }

    /// Does what some statements say.
    pub(crate) async fn execute(&self, sql: &str) -> Result<()> {
        let mut connection = self.connect().await?;
        execute(&mut connection, sql).await?;
        Ok(connection.close().await?)
    }

    /// How many effects there are of the records at these places.
    pub(crate) async fn effects_at(&self, places: &[Place]) -> Result<usize> {
        let made = self.effects().await?;
        Ok(made.iter().filter(|effect| effect.is_of(places)).count())
    }

    /// The same, of those that one worker has made.
    pub(crate) async fn effects_by(&self, worker: &str, places: &[Place]) -> Result<usize> {
        let made = self.effects().await?;
        let is_his = |effect: &&EffectAt| effect.worker == worker && effect.is_of(places);
        Ok(made.iter().filter(is_his).count())
    }

    /// A number that a query answers with.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64> {
        let mut connection = self.connect().await?;
        let number = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(number)
    }

    /// The sessions of a worker that wait for a lock of somebody else's.
    pub(crate) async fn waiting(&self, worker: &str) -> Result<i64> {
        self.number(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate-lab {worker}'
                AND cardinality(pg_blocking_pids(pid)) > 0"
        ))
        .await
    }

    pub(crate) async fn effects(&self) -> Result<Vec<EffectAt>> {
        let sql = "SELECT part, record_offset, worker, epoch,
                (extract(epoch FROM made_at) * 1000)::bigint AS at FROM entry ORDER BY seq";
        let mut connection = self.connect().await?;
        let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
        connection.close().await?;
        let effect = |row: &sqlx::postgres::PgRow| {
            Ok(EffectAt {
                partition: row.try_get("part")?,
                offset: row.try_get("record_offset")?,
                worker: row.try_get("worker")?,
                epoch: row.try_get("epoch")?,
                at: row.try_get("at")?,
            })
        };
        rows.iter().map(effect).collect()
    }
}

impl EffectAt {
    fn is_of(&self, places: &[Place]) -> bool {
        let here = (self.partition, self.offset);
        places.iter().any(|place| (place.partition.partition, place.offset) == here)
    }
}

async fn execute(connection: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

fn in_schema(server: &str, schema: &str) -> String {
    let separator = if server.contains('?') { '&' } else { '?' };
    format!("{server}{separator}options=-csearch_path%3D{schema}")
}
