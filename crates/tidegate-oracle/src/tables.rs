//! Reads the tables, with plain SQL.

mod queries;

use sqlx::{
    AnyConnection, AssertSqlSafe, Connection as _, Executor as _, Row as _,
    any::{AnyRow, install_default_drivers},
};

pub use self::queries::Queries;
use crate::{
    Balance, Effect, Evidence, Floor, Marker, MessageId, Parked, Partition, Place, Position,
};

/// A database, read by a connection of the oracle's own.
///
/// ```no_run
/// use tidegate_oracle::{Evidence, Queries, Tables, TablesFailure};
///
/// async fn read(evidence: &mut Evidence) -> Result<(), TablesFailure> {
///     Tables::new("sqlite://ledger.db", Queries::default()).read(evidence).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Tables {
    url: String,
    queries: Queries,
}

/// A table could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TablesFailure {
    /// The database did not answer.
    #[error("the database could not be reached")]
    Connect(#[source] sqlx::Error),
    /// A statement failed, or has other columns than it should.
    #[error("the {table} could not be read")]
    Read {
        /// Of which statement: the name of its field in [`Queries`].
        table: &'static str,
        /// Why.
        source: sqlx::Error,
    },
}

// ===== impl Tables =====

impl Tables {
    /// Names a database: `postgres://…` or `sqlite://…`.
    #[must_use]
    pub fn new(url: impl Into<String>, queries: Queries) -> Self {
        Self { url: url.into(), queries }
    }

    /// Reads all tables, as they are at one moment, into the evidence.
    ///
    /// # Errors
    ///
    /// When the database does not answer, or has not the tables.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing, but for the evidence, which is then
    /// read in part.
    pub async fn read(&self, evidence: &mut Evidence) -> Result<(), TablesFailure> {
        install_default_drivers();
        let connecting = AnyConnection::connect(&self.url);
        let mut connection = connecting.await.map_err(TablesFailure::Connect)?;
        // One moment: on SQLite any transaction sees it.
        let postgres = self.url.starts_with("postgres");
        let begin =
            if postgres { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" } else { "BEGIN" };
        connection.execute(begin).await.map_err(TablesFailure::Connect)?;
        self.read_all(&mut connection, evidence).await?;
        connection.execute("COMMIT").await.map_err(TablesFailure::Connect)?;
        connection.close().await.map_err(TablesFailure::Connect)
    }

    async fn read_all(
        &self,
        connection: &mut AnyConnection,
        evidence: &mut Evidence,
    ) -> Result<(), TablesFailure> {
        let Queries { effects, markers, floors, positions, parked, buried, balances } =
            &self.queries;
        evidence.effects = rows(connection, "effects", effects, effect).await?;
        evidence.markers = rows(connection, "markers", markers, marker).await?;
        evidence.floors = rows(connection, "floors", floors, floor).await?.unwrap_or_default();
        evidence.positions = rows(connection, "positions", positions, position).await?;
        evidence.parked = rows(connection, "parked", parked, self::parked).await?;
        evidence.buried = rows(connection, "buried", buried, place).await?;
        evidence.balances = rows(connection, "balances", balances, balance).await?;
        Ok(())
    }
}

async fn rows<T>(
    connection: &mut AnyConnection,
    table: &'static str,
    sql: &Option<String>,
    of_row: fn(&AnyRow) -> sqlx::Result<T>,
) -> Result<Option<Vec<T>>, TablesFailure> {
    let Some(sql) = sql else { return Ok(None) };
    // The statement is the caller's, as is the database.
    let rows = sqlx::query(AssertSqlSafe(sql.as_str())).fetch_all(connection).await;
    let rows = rows.and_then(|rows| rows.iter().map(of_row).collect());
    rows.map(Some).map_err(|source| TablesFailure::Read { table, source })
}

fn effect(row: &AnyRow) -> sqlx::Result<Effect> {
    Ok(Effect {
        id: id(row)?,
        entity: entity(row)?,
        revision: row.try_get("revision")?,
        amount: row.try_get("amount")?,
        place: place(row)?,
        worker: row.try_get("worker")?,
        epoch: row.try_get("epoch")?,
        seq: row.try_get("seq")?,
    })
}

fn marker(row: &AnyRow) -> sqlx::Result<Marker> {
    Ok(Marker { id: id(row)?, place: place(row)? })
}

fn floor(row: &AnyRow) -> sqlx::Result<Floor> {
    Ok(Floor { partition: partition(row)?, low: row.try_get("low")?, floor: row.try_get("floor")? })
}

fn position(row: &AnyRow) -> sqlx::Result<Position> {
    Ok(Position { entity: entity(row)?, revision: row.try_get("revision")? })
}

fn parked(row: &AnyRow) -> sqlx::Result<Parked> {
    let withheld = row
        .try_get::<bool, _>("withheld")
        .or_else(|_| row.try_get::<i64, _>("withheld").map(|number| number != 0));
    Ok(Parked {
        entity: entity(row)?,
        revision: row.try_get("revision")?,
        place: place(row)?,
        withheld: withheld?,
    })
}

fn balance(row: &AnyRow) -> sqlx::Result<Balance> {
    Ok(Balance { entity: entity(row)?, amount: row.try_get("amount")? })
}

fn place(row: &AnyRow) -> sqlx::Result<Place> {
    Ok(partition(row)?.at(row.try_get("record_offset")?))
}

fn partition(row: &AnyRow) -> sqlx::Result<Partition> {
    Ok(Partition::new(row.try_get::<String, _>("topic")?, row.try_get("part")?))
}

fn id(row: &AnyRow) -> sqlx::Result<MessageId> {
    let wrong = |reason: &str| sqlx::Error::ColumnDecode {
        index: "id".to_owned(),
        source: format!("an id is 16 bytes or a number that is not negative, this {reason}").into(),
    };
    if let Ok(number) = row.try_get::<i64, _>("id") {
        let number = u64::try_from(number).map_err(|_| wrong("is negative"))?;
        return Ok(MessageId(number.into()));
    }
    let bytes = row.try_get::<Vec<u8>, _>("id")?;
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| wrong("has another length"))?;
    Ok(MessageId(u128::from_be_bytes(bytes)))
}

fn entity(row: &AnyRow) -> sqlx::Result<String> {
    row.try_get::<String, _>("entity").or_else(|_| {
        let bytes = row.try_get::<Vec<u8>, _>("entity")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}
