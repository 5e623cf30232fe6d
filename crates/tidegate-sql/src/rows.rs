use std::fmt::Write as _;

use sea_orm::{
    DbBackend, Statement,
    sea_query::{ArrayType, Value},
};

/// Rows that one statement works on.
///
/// A statement reads them from the table `rows`, and is the same text for each
/// database: SQLite is given them as `VALUES`, PostgreSQL as an array a column,
/// so that its text, and with it the prepared statement, does not depend on how
/// many there are. The statement's own parameters come first, from `$1` on.
///
/// ```
/// # use sea_orm::DbBackend;
/// # use tidegate_sql::Rows;
/// let rows = Rows::new().column("id", [1_i64, 2]).column("name", ["a", "b"]);
/// let sql = "DELETE FROM names WHERE ns = $1 AND id IN (SELECT id FROM rows)";
///
/// let statement = rows.statement(DbBackend::Sqlite, [7.into()], sql);
/// assert!(statement.sql.starts_with("WITH rows (id, name) AS (VALUES ($2, $3), ($4, $5)) DELETE"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rows {
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    name: &'static str,
    values: Vec<Value>,
    nullable: bool,
}

impl Rows {
    /// The most that SQLite takes in one statement.
    pub const MAX_PARAMETERS: usize = 32_766;

    /// Rows without columns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column: as many values as there are rows, all of one type.
    #[must_use]
    pub fn column<V: Into<Value>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.columns.push(Column { name, values, nullable: false });
        self
    }

    /// Adds a column of bytes, some of which are not there.
    #[must_use]
    pub fn nullable_column(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<Vec<u8>>>,
    ) -> Self {
        let values = values.into_iter().map(Value::from).collect();
        self.columns.push(Column { name, values, nullable: true });
        self
    }

    /// Puts the rows before `sql`.
    ///
    /// # Panics
    ///
    /// When there are no rows, or not as many values in each column.
    #[must_use]
    pub fn statement<const N: usize>(
        self,
        backend: DbBackend,
        parameters: [Value; N],
        sql: &str,
    ) -> Statement {
        let count = self.columns.first().map_or(0, |column| column.values.len());
        assert!(count > 0, "there are rows");
        assert!(self.columns.iter().all(|it| it.values.len() == count), "each row is whole");
        let names: Vec<_> = self.columns.iter().map(|it| it.name).collect();
        let mut text = format!("WITH rows ({}) AS (", names.join(", "));
        let mut values = Vec::from(parameters);
        if backend == DbBackend::Postgres {
            self.unnest(&mut text, &mut values);
        } else {
            self.list(count, &mut text, &mut values);
        }
        text.push_str(") ");
        text.push_str(sql);
        Statement::from_sql_and_values(backend, text, values)
    }

    fn unnest(self, text: &mut String, values: &mut Vec<Value>) {
        let mut selected = Vec::new();
        let mut arrays = Vec::new();
        let mut add = |column: Vec<Value>| {
            let (array, name) = array_type(&column[0]);
            values.push(Value::Array(array, Some(Box::new(column))));
            arrays.push(format!("${}::{name}[]", values.len()));
            format!("c{}", arrays.len())
        };
        for Column { values: column, nullable, .. } in self.columns {
            // SeaQuery panics at a null in an array. So it is sent beside it.
            let present = nullable.then(|| {
                let is_present =
                    |value: &Value| Value::from(i32::from(*value != Value::Bytes(None)));
                add(column.iter().map(is_present).collect())
            });
            let column = add(column.into_iter().map(or_empty).collect());
            selected.push(match present {
                Some(present) => format!("CASE {present} WHEN 1 THEN {column} END"),
                None => column,
            });
        }
        let names: Vec<_> = (1..=arrays.len()).map(|index| format!("c{index}")).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "SELECT {} FROM unnest({}) AS arrays ({})",
            selected.join(", "),
            arrays.join(", "),
            names.join(", ")
        );
    }

    fn list(self, count: usize, text: &mut String, values: &mut Vec<Value>) {
        let mut columns: Vec<_> =
            self.columns.into_iter().map(|column| column.values.into_iter()).collect();
        text.push_str("VALUES ");
        for row in 0..count {
            text.push_str(if row == 0 { "(" } else { ", (" });
            for (index, column) in columns.iter_mut().enumerate() {
                values.extend(column.next());
                let comma = if index == 0 { "" } else { ", " };
                let _ = write!(text, "{comma}${}", values.len());
            }
            text.push(')');
        }
    }
}

fn or_empty(value: Value) -> Value {
    if value == Value::Bytes(None) { Value::Bytes(Some(Vec::new())) } else { value }
}

/// The element type of an array of values like this one.
fn array_type(value: &Value) -> (ArrayType, &'static str) {
    match value {
        Value::Int(_) => (ArrayType::Int, "int4"),
        Value::BigInt(_) => (ArrayType::BigInt, "int8"),
        Value::String(_) => (ArrayType::String, "text"),
        Value::Bytes(_) => (ArrayType::Bytes, "bytea"),
        other => panic!("no rows are made of {other:?}"),
    }
}
