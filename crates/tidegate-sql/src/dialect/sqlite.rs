//! SQLite: a batch is a blob of all its bytes, and a JSON text of its numbers,
//! among them where in the blob each value is. Its size is not part of the
//! text, and no byte is spelt out in digits. (Measured against a `VALUES` list
//! and against hexadecimal digits in JSON: two to eight times as fast for 100
//! rows and more, and as fast for one.)
//!
//! What one statement of PostgreSQL does is two here, in one text: `SQLx` runs
//! them in one turn of its thread.

use std::fmt::Write as _;

use sea_orm::{DbBackend, Statement, sea_query::Value};
use tidegate_core::TopicPartition;

use super::Statements;
use crate::tables::{
    entities::{Run, Standing},
    markers::Marker,
    parked::{Parking, Place},
};

#[derive(Debug)]
pub(super) struct Sqlite;

// `key` counts the rows; each has 32 bytes of the blob.
const CLAIM: &str = "\
SELECT s.low, s.floor, s.topic_id, i.id, i.fp
FROM tidegate_source s LEFT JOIN tidegate_inbox i
    ON i.ns = s.ns AND i.id IN (SELECT substr($5, key * 32 + 1, 16) FROM json_each($4))
WHERE s.ns = $1 AND s.topic = $2 AND s.part = $3;
INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
SELECT $1, substr($5, key * 32 + 1, 16), substr($5, key * 32 + 17, 16), s.source, value
FROM tidegate_source s, json_each($4)
WHERE s.ns = $1 AND s.topic = $2 AND s.part = $3 AND (value < s.low OR value >= s.floor)
ON CONFLICT (ns, id) DO NOTHING";

const SEEN: &str = "\
SELECT id, fp FROM tidegate_inbox
WHERE ns = $1 AND id IN (SELECT substr($3, value ->> 0, value ->> 1) FROM json_each($2))";

const STAND: &str = "\
WITH r AS (
    SELECT key + 1 AS slot, substr($4, value ->> 0, value ->> 1) AS ent,
        value ->> 2 AS lo, value ->> 3 AS hi
    FROM json_each($3)
)
SELECT slot FROM r LEFT JOIN tidegate_entity e ON e.ns = $1 AND e.ent = r.ent
WHERE NOT (ifnull(e.held, 0) = 0 AND ifnull(e.rev, $2) BETWEEN lo AND hi);
WITH r AS (
    SELECT substr($4, value ->> 0, value ->> 1) AS ent, value ->> 2 AS lo, value ->> 3 AS hi,
        value ->> 4 AS last, substr($4, value ->> 5, 16) AS id, substr($4, value ->> 6, 16) AS fp
    FROM json_each($3)
)
INSERT INTO tidegate_entity (ns, ent, rev, held, last_id, last_fp)
SELECT $1, r.ent, r.last, 0, r.id, r.fp
FROM r LEFT JOIN tidegate_entity e ON e.ns = $1 AND e.ent = r.ent
WHERE ifnull(e.held, 0) = 0 AND ifnull(e.rev, $2) BETWEEN r.lo AND r.hi
ON CONFLICT (ns, ent) DO UPDATE SET
    rev = excluded.rev, last_id = excluded.last_id, last_fp = excluded.last_fp";

const STANDING: &str = "\
SELECT ent, rev, held,
    CASE WHEN rev > $2 THEN last_id END, CASE WHEN rev > $2 THEN last_fp END
FROM tidegate_entity
WHERE ns = $1 AND ent IN (SELECT substr($4, value ->> 0, value ->> 1) FROM json_each($3))";

const SETTLE: &str = "\
INSERT INTO tidegate_entity (ns, ent, rev, held, last_id, last_fp)
SELECT $1, substr($3, value ->> 0, value ->> 1), value ->> 2, value ->> 3,
    nullif(substr($3, value ->> 4, value ->> 5), x''),
    nullif(substr($3, value ->> 6, value ->> 7), x'')
FROM json_each($2) WHERE true
ON CONFLICT (ns, ent) DO UPDATE SET
    rev = excluded.rev, held = excluded.held, last_id = excluded.last_id, last_fp = excluded.last_fp";

const PARKED: &str = "\
SELECT ent, rev, id, fp, withheld IS NOT NULL FROM tidegate_parked
WHERE ns = $1 AND ent IN (SELECT substr($3, value ->> 0, value ->> 1) FROM json_each($2))";

// A length below zero is a value that is not there.
const PARK: &str = "\
INSERT INTO tidegate_parked
    (ns, ent, rev, id, fp, topic, part, record_offset, record_ts, record_key, payload, headers)
SELECT $1, substr($3, value ->> 0, value ->> 1), value ->> 2,
    substr($3, value ->> 3, value ->> 4), substr($3, value ->> 5, value ->> 6),
    CAST(substr($3, value ->> 7, value ->> 8) AS TEXT), value ->> 9, value ->> 10, value ->> 11,
    CASE WHEN value ->> 13 >= 0 THEN substr($3, value ->> 12, value ->> 13) END,
    CASE WHEN value ->> 15 >= 0 THEN substr($3, value ->> 14, value ->> 15) END,
    CASE WHEN value ->> 17 >= 0 THEN substr($3, value ->> 16, value ->> 17) END
FROM json_each($2)";

const TAKE: &str = "\
DELETE FROM tidegate_parked
WHERE ns = $1 AND (ent, rev) IN (
    SELECT substr($3, value ->> 0, value ->> 1), value ->> 2 FROM json_each($2)
)
RETURNING ent, rev, id, fp, topic, part, record_offset, record_ts, record_key, payload, headers";

impl Statements for Sqlite {
    fn claim(&self, ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> Statement {
        let mut offsets = String::from("[");
        let mut bytes = Vec::with_capacity(markers.len() * 32);
        for marker in markers {
            // Writing to a string cannot fail.
            let _ = write!(offsets, "{},", marker.offset);
            bytes.extend_from_slice(&marker.mark.to_bytes());
        }
        close(&mut offsets);
        statement(
            CLAIM,
            [
                ns.into(),
                (&*partition.topic).into(),
                partition.partition.into(),
                offsets.into(),
                bytes.into(),
            ],
        )
    }

    fn seen(&self, ns: i32, ids: &[&[u8]]) -> Statement {
        statement(SEEN, Packed::of(ids, |id, row| row.bytes(id)).after([ns.into()]))
    }

    fn stand(&self, ns: i32, base: i64, runs: &[Run<'_>]) -> Statement {
        let packed = Packed::of(runs, |run, row| {
            row.bytes(run.entity);
            row.number(run.from);
            row.number(run.to);
            row.number(run.last);
            row.start(&run.mark.id.to_bytes());
            row.start(&run.mark.fingerprint.to_bytes());
        });
        statement(STAND, packed.after([ns.into(), base.into()]))
    }

    fn standing(&self, ns: i32, base: i64, entities: &[&[u8]]) -> Statement {
        let packed = Packed::of(entities, |entity, row| row.bytes(entity));
        statement(STANDING, packed.after([ns.into(), base.into()]))
    }

    fn settle(&self, ns: i32, standings: &[(&[u8], &Standing)]) -> Statement {
        let packed = Packed::of(standings, |(entity, standing), row| {
            row.bytes(entity);
            row.number(standing.revision);
            row.number(standing.held.into());
            let last = standing.last;
            row.bytes(last.map(|mark| mark.id.to_bytes()).as_ref().map_or(&[], |it| it));
            row.bytes(last.map(|mark| mark.fingerprint.to_bytes()).as_ref().map_or(&[], |it| it));
        });
        statement(SETTLE, packed.after([ns.into()]))
    }

    fn parked(&self, ns: i32, entities: &[&[u8]]) -> Statement {
        let packed = Packed::of(entities, |entity, row| row.bytes(entity));
        statement(PARKED, packed.after([ns.into()]))
    }

    fn park(&self, ns: i32, rows: &[Parking<'_>]) -> Statement {
        let packed = Packed::of(rows, |parking, row| {
            let record = parking.record;
            row.bytes(parking.entity);
            row.number(parking.revision);
            row.bytes(&parking.mark.id.to_bytes());
            row.bytes(&parking.mark.fingerprint.to_bytes());
            row.bytes(record.partition.topic.as_bytes());
            row.number(record.partition.partition.into());
            row.number(record.offset);
            row.number(record.timestamp);
            row.nullable(record.key.as_deref());
            row.nullable(record.payload.as_deref());
            row.nullable(parking.headers.as_deref());
        });
        statement(PARK, packed.after([ns.into()]))
    }

    fn take(&self, ns: i32, places: &[Place<'_>]) -> Statement {
        let packed = Packed::of(places, |(entity, revision), row| {
            row.bytes(entity);
            row.number(*revision);
        });
        statement(TAKE, packed.after([ns.into()]))
    }
}

/// The rows of a batch, as two parameters: an array of numbers for each row,
/// and all their bytes in one blob.
#[derive(Debug)]
struct Packed {
    numbers: String,
    bytes: Vec<u8>,
}

impl Packed {
    fn of<R>(rows: &[R], mut add: impl FnMut(&R, &mut Self)) -> Self {
        let mut packed = Self { numbers: String::from("["), bytes: Vec::new() };
        for row in rows {
            packed.numbers.push('[');
            add(row, &mut packed);
            close(&mut packed.numbers);
            packed.numbers.push(',');
        }
        close(&mut packed.numbers);
        packed
    }

    fn number(&mut self, number: i64) {
        // Writing to a string cannot fail.
        let _ = write!(self.numbers, "{number},");
    }

    /// Adds bytes, whose place is known by where they start, from 1 on.
    fn start(&mut self, bytes: &[u8]) {
        let _ = write!(self.numbers, "{},", self.bytes.len() + 1);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes: where they start, and how many they are.
    fn bytes(&mut self, bytes: &[u8]) {
        self.nullable(Some(bytes));
    }

    fn nullable(&mut self, bytes: Option<&[u8]>) {
        self.start(bytes.unwrap_or_default());
        match bytes {
            Some(bytes) => {
                let _ = write!(self.numbers, "{},", bytes.len());
            }
            None => self.numbers.push_str("-1,"),
        }
    }

    /// The two parameters, behind those before them.
    fn after<const N: usize>(self, before: [Value; N]) -> Vec<Value> {
        before.into_iter().chain([self.numbers.into(), self.bytes.into()]).collect()
    }
}

/// Ends a JSON array whose last value, if there is one, has a comma behind it.
fn close(json: &mut String) {
    if json.ends_with(',') {
        json.pop();
    }
    json.push(']');
}

fn statement(sql: &str, values: impl IntoIterator<Item = Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Sqlite, sql, values)
}
