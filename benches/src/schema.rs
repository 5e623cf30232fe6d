//! The tables of one run: a schema of its own, or a file.

use anyhow::{Context as _, Result, ensure};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tidegate::sql::Database;
use tidegate_oracle::ledger;

/// The tables of a loop that keeps balances.
pub(crate) const BALANCES: &str = "
    CREATE TABLE marker (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE balance (
        account text PRIMARY KEY,
        revision bigint NOT NULL,
        amount bigint NOT NULL
    ) WITH (fillfactor = 70)";

/// What is wrong with balances, of which each is the sum of the revisions.
const WRONG_BALANCES: &str =
    "SELECT count(*) FROM balance WHERE amount <> revision * (revision + 1) / 2";

/// The tables of one run, on PostgreSQL or in a file.
pub(crate) struct Schema {
    url: String,
    /// The server and the schema's name; none for a file.
    server: Option<(String, String)>,
}

// ===== impl Schema =====

impl Schema {
    /// Makes the tables in a schema of this name.
    pub(crate) async fn on(server: &str, name: &str) -> Result<Self> {
        let mut connection = PgConnection::connect(server).await?;
        execute(&mut connection, &format!("DROP SCHEMA IF EXISTS {name} CASCADE")).await?;
        execute(&mut connection, &format!("CREATE SCHEMA {name}")).await?;
        connection.close().await?;
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-csearch_path%3D{name}");
        let server = Some((server.to_owned(), name.to_owned()));
        let schema = Self { url, server };
        schema.fill(ledger::ENTRY_POSTGRES).await?;
        Ok(schema)
    }

    /// Makes the tables in a file.
    pub(crate) async fn in_file(path: &std::path::Path) -> Result<Self> {
        let url = format!("sqlite://{}?mode=rwc", path.display());
        let schema = Self { url, server: None };
        schema.fill(ledger::ENTRY_SQLITE).await?;
        Ok(schema)
    }

    async fn fill(&self, entry: &str) -> Result<()> {
        Database::migrate(self.url()).await.context("creating the layers' tables")?;
        self.execute(entry).await
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Makes known what a stack makes known by itself: the namespace, and the
    /// partitions.
    pub(crate) async fn enter(&self, topic: &str, partitions: i32) -> Result<()> {
        self.execute("INSERT INTO tidegate_namespace (target, generation) VALUES ('main', 1)")
            .await?;
        for partition in 0..partitions {
            self.execute(&format!(
                "INSERT INTO tidegate_source
                    (ns, topic, part, low, floor, gap, resumed, reached)
                VALUES (1, '{topic}', {partition}, 0, 0, 0, 0, 0)"
            ))
            .await?;
        }
        Ok(())
    }

    /// Runs a statement.
    pub(crate) async fn execute(&self, sql: &str) -> Result<()> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&self.url).await?;
        connection.execute(AssertSqlSafe(sql)).await?;
        Ok(connection.close().await?)
    }

    /// Looks whether every record of a topic is in its balance once.
    pub(crate) async fn check_balances(&self, records: u64) -> Result<()> {
        let sum = self.count("SELECT sum(revision)::bigint FROM balance").await?;
        let wrong = self.count(WRONG_BALANCES).await?;
        ensure!(wrong == 0 && sum.cast_unsigned() == records, "{sum} records, {wrong} wrong sums");
        Ok(())
    }

    /// A number that a query answers with.
    pub(crate) async fn count(&self, sql: &str) -> Result<i64> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&self.url).await?;
        let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(count)
    }

    /// Removes it.
    pub(crate) async fn drop(&self) -> Result<()> {
        let Some((server, name)) = &self.server else { return Ok(()) };
        let mut connection = PgConnection::connect(server).await?;
        execute(&mut connection, &format!("DROP SCHEMA {name} CASCADE")).await?;
        Ok(connection.close().await?)
    }
}

/// The number of a partition in the tables.
pub(crate) async fn source(
    connection: &mut PgConnection,
    topic: &str,
    partition: i32,
) -> Result<i32> {
    let sql = "SELECT source FROM tidegate_source WHERE ns = 1 AND topic = $1 AND part = $2";
    let source = sqlx::query_scalar(sql).bind(topic).bind(partition).fetch_one(connection).await;
    source.context("the partition is not known")
}

async fn execute(connection: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}
