/// The statements by which the tables are read.
///
/// Each yields columns of the names that are said; more do no harm. A statement
/// that is `None` is not run: its table is not part of the evidence.
///
/// Numbers may be of any size; ids are 16 bytes, or a number (a UUID of
/// PostgreSQL is made bytes by `uuid_send`); entities are text, or bytes; what
/// is true or false may be a number.
///
/// ```
/// use tidegate_oracle::Queries;
///
/// // An application that overwrites has one row an entity, and no history.
/// let mut queries = Queries::of_namespace("prices", 3);
/// queries.balances = Some("SELECT name AS entity, price AS amount FROM price".to_owned());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queries {
    /// `id`, `entity`, `revision`, `amount`, `topic`, `part`, `record_offset`,
    /// `worker`, `epoch`, `seq`.
    pub effects: Option<String>,
    /// `id`, `topic`, `part`, `record_offset`.
    pub markers: Option<String>,
    /// `topic`, `part`, `low`, `floor`.
    pub floors: Option<String>,
    /// `entity`, `revision`.
    pub positions: Option<String>,
    /// `entity`, `revision`, `topic`, `part`, `record_offset`, `withheld`.
    pub parked: Option<String>,
    /// `topic`, `part`, `record_offset`.
    pub buried: Option<String>,
    /// `entity`, `amount`.
    pub balances: Option<String>,
}

// ===== impl Queries =====

impl Queries {
    /// Nothing is read.
    #[must_use]
    pub fn none() -> Self {
        Self {
            effects: None,
            markers: None,
            floors: None,
            positions: None,
            parked: None,
            buried: None,
            balances: None,
        }
    }

    /// Effects as in the tables of [`ledger`](crate::ledger), and the layers'
    /// tables of one namespace: a generation of a target.
    #[must_use]
    pub fn of_namespace(target: &str, generation: i64) -> Self {
        let target = target.replace('\'', "''");
        let ns = format!(
            "ns = (SELECT ns FROM tidegate_namespace
                WHERE target = '{target}' AND generation = {generation})"
        );
        let effects = "SELECT id, account AS entity, revision, amount, topic, part,
            record_offset, worker, epoch, seq FROM entry";
        let markers = format!(
            "SELECT id, topic, part, record_offset FROM tidegate_inbox
                JOIN tidegate_source ON tidegate_source.source = tidegate_inbox.source
                WHERE tidegate_inbox.{ns}"
        );
        let parked = format!(
            "SELECT ent AS entity, rev AS revision, topic, part, record_offset,
                withheld IS NOT NULL AS withheld FROM tidegate_parked WHERE {ns}"
        );
        let of =
            |columns: &str, table: &str| Some(format!("SELECT {columns} FROM {table} WHERE {ns}"));
        Self {
            effects: Some(effects.to_owned()),
            markers: Some(markers),
            floors: of("topic, part, low, floor", "tidegate_source"),
            positions: of("ent AS entity, rev AS revision", "tidegate_entity"),
            parked: Some(parked),
            buried: of("topic, part, record_offset", "tidegate_dead_letter"),
            balances: None,
        }
    }
}

impl Default for Queries {
    /// The namespace that a database has by default: generation 1 of `main`.
    fn default() -> Self {
        Self::of_namespace("main", 1)
    }
}
