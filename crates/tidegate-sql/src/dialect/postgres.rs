//! PostgreSQL: a batch is an array a column, so that its size is not part of the
//! text. Marks, all of one size, are one string of bytes: an array of as many
//! values costs both sides a good deal more.

use sea_orm::{
    DbBackend, Statement,
    sea_query::{ArrayType, Value},
};
use tidegate_core::TopicPartition;

use super::Statements;
use crate::tables::{
    Mark,
    entities::{Run, Standing},
    markers::Marker,
    parked::{Parking, Place},
};

#[derive(Debug)]
pub(super) struct Postgres;

// The gate is an advisory lock, which is granted in the order of the requests:
// a pruner waits for the transactions that are under way, and not for those
// that come after it, as it would for the row's lock alone. The row's lock is
// what makes the statement see what a pruner wrote while it waited. Of
// `generate_series` the planner expects a thousand rows, so that it would plan
// each small batch anew, which takes it longer than the rest.
macro_rules! claim {
    ($end:literal) => {
        concat!(
            "\
WITH gate AS MATERIALIZED (
    SELECT source, pg_advisory_xact_lock_shared(1953064037, source)::text AS passed
    FROM tidegate_source WHERE ns = $1 AND topic = $2 AND part = $3
), place AS MATERIALIZED (
    SELECT s.source, s.low, s.floor, s.topic_id
    FROM gate JOIN tidegate_source s ON s.source = gate.source
    WHERE gate.passed = ''
    FOR SHARE OF s
), claimed AS (
    INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
    SELECT $1, substr($4, r.n::int4 * 32 - 31, 16), substr($4, r.n::int4 * 32 - 15, 16),
        place.source, r.pos
    FROM place, unnest($5::int8[]) WITH ORDINALITY AS r (pos, n)
    WHERE r.pos < place.low OR r.pos >= place.floor
    ORDER BY r.n
",
            $end
        )
    };
}

// What was not claimed is looked for only if there is something: mostly, all is
// new.
const CLAIM: &str = claim!(
    "\
    ON CONFLICT (ns, id) DO NOTHING
    RETURNING id
)
SELECT place.low, place.floor, place.topic_id, before.id, NULL::bytea
FROM place LEFT JOIN (
    SELECT r.id FROM (
        SELECT substr($4, n::int4 * 32 - 31, 16)
        FROM unnest($5::int8[]) WITH ORDINALITY AS u (pos, n)
    ) AS r (id)
    WHERE (SELECT count(*) FROM claimed) < cardinality($5::int8[])
        AND NOT EXISTS (SELECT FROM claimed WHERE claimed.id = r.id)
) before ON true"
);

// To pass a marker by that is there, each is looked for before it is written,
// and written as one that may have to be taken back: 5.0 us a marker, and 2.8
// without.
const CLAIM_NEW: &str = claim!(
    "\
)
SELECT low, floor, topic_id, NULL::bytea, NULL::bytea FROM place"
);

const SEEN: &str = "SELECT id, fp FROM tidegate_inbox WHERE ns = $1 AND id = ANY($2::bytea[])";

// A row that is inserted and one that conflicts take different ways, and the
// second one sees only what the first one would have written: `slot` is the way
// back to the arrays, and below zero in what advanced. Arrays of numbers are
// indexed in constant time; those of bytes are not, which is why the marks go by
// the row. One that conflicts and does not advance is locked all the same, and
// not answered with, so that where it stands takes another statement: to write
// and to send what it has already costs more for those that advance, mostly all.
// The rows come in the order of the arrays, and so are locked in it.
const STAND: &str = "\
WITH stood AS (
    INSERT INTO tidegate_entity AS e (ns, ent, slot, rev, held, last_id, last_fp)
    SELECT $1, r.ent, CASE WHEN $2 BETWEEN r.lo AND r.hi THEN -r.slot ELSE r.slot END,
        CASE WHEN $2 BETWEEN r.lo AND r.hi THEN r.last ELSE $2 END, 0,
        substr($7, r.slot::int4 * 32 - 31, 16), substr($7, r.slot::int4 * 32 - 15, 16)
    FROM unnest($3::bytea[], $4::int8[], $5::int8[], $6::int8[])
        WITH ORDINALITY AS r (ent, lo, hi, last, slot)
    ON CONFLICT (ns, ent) DO UPDATE SET
        slot = -abs(excluded.slot),
        rev = ($6::int8[])[abs(excluded.slot)],
        last_id = excluded.last_id,
        last_fp = excluded.last_fp
    WHERE e.held = 0 AND e.rev BETWEEN
        ($4::int8[])[abs(excluded.slot)] AND ($5::int8[])[abs(excluded.slot)]
    RETURNING slot
)
SELECT r.slot
FROM unnest($4::int8[]) WITH ORDINALITY AS r (lo, slot)
WHERE (SELECT count(*) FROM stood WHERE stood.slot < 0) < cardinality($4::int8[])
    AND NOT EXISTS (SELECT FROM stood WHERE stood.slot = -r.slot)";

// An entity that stands at the base has a message although nothing of it was
// applied, and it is not read.
const STANDING: &str = "\
SELECT ent, rev, held,
    CASE WHEN rev > $2 THEN last_id END, CASE WHEN rev > $2 THEN last_fp END
FROM tidegate_entity WHERE ns = $1 AND ent = ANY($3::bytea[])";

// Its rows are locked already, so their order does not matter.
const SETTLE: &str = "\
UPDATE tidegate_entity AS e
SET rev = r.rev, held = r.held, last_id = nullif(r.id, ''), last_fp = nullif(r.fp, '')
FROM unnest($2::bytea[], $3::int8[], $4::int4[], $5::bytea[], $6::bytea[])
    AS r (ent, rev, held, id, fp)
WHERE e.ns = $1 AND e.ent = r.ent";

const PARKED: &str = "\
SELECT ent, rev, id, fp, CASE WHEN withheld IS NULL THEN 0 ELSE 1 END
FROM tidegate_parked WHERE ns = $1 AND ent = ANY($2::bytea[])";

// SeaQuery panics at a null in an array, so `there` says which of the nullable
// columns are.
const PARK: &str = "\
INSERT INTO tidegate_parked
    (ns, ent, rev, id, fp, topic, part, record_offset, record_ts, record_key, payload, headers)
SELECT $1, ent, rev, id, fp, topic, part, pos, ts,
    CASE WHEN there & 1 > 0 THEN k END,
    CASE WHEN there & 2 > 0 THEN p END,
    CASE WHEN there & 4 > 0 THEN h END
FROM unnest($2::bytea[], $3::int8[], $4::bytea[], $5::bytea[], $6::text[], $7::int4[], $8::int8[],
        $9::int8[], $10::bytea[], $11::bytea[], $12::bytea[], $13::int4[])
    AS r (ent, rev, id, fp, topic, part, pos, ts, k, p, h, there)";

const TAKE: &str = "\
DELETE FROM tidegate_parked AS p
USING unnest($2::bytea[], $3::int8[]) AS r (ent, rev)
WHERE p.ns = $1 AND p.ent = r.ent AND p.rev = r.rev
RETURNING p.ent, p.rev, p.id, p.fp, p.topic, p.part, p.record_offset, p.record_ts, p.record_key,
    p.payload, p.headers";

impl Statements for Postgres {
    fn claim(&self, ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> Statement {
        statement(CLAIM, claimed(ns, partition, markers))
    }

    fn claim_new(&self, ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> Statement {
        statement(CLAIM_NEW, claimed(ns, partition, markers))
    }

    fn seen(&self, ns: i32, ids: &[&[u8]]) -> Statement {
        statement(SEEN, [ns.into(), bytes(ids.iter())])
    }

    fn stand(&self, ns: i32, base: i64, runs: &[Run<'_>]) -> Statement {
        statement(
            STAND,
            [
                ns.into(),
                base.into(),
                bytes(runs.iter().map(|it| it.entity)),
                longs(runs.iter().map(|it| it.from)),
                longs(runs.iter().map(|it| it.to)),
                longs(runs.iter().map(|it| it.last)),
                marks(runs.iter().map(|it| it.mark)),
            ],
        )
    }

    fn standing(&self, ns: i32, base: i64, entities: &[&[u8]]) -> Statement {
        statement(STANDING, [ns.into(), base.into(), bytes(entities.iter())])
    }

    fn settle(&self, ns: i32, standings: &[(&[u8], &Standing)]) -> Statement {
        let lasts = || standings.iter().map(|(_, it)| it.last);
        let of = |mark: Option<[u8; 16]>| mark.map(Vec::from).unwrap_or_default();
        statement(
            SETTLE,
            [
                ns.into(),
                bytes(standings.iter().map(|(entity, _)| entity)),
                longs(standings.iter().map(|(_, it)| it.revision)),
                ints(standings.iter().map(|(_, it)| it.held)),
                bytes(lasts().map(|it| of(it.map(|mark| mark.id.to_bytes())))),
                bytes(lasts().map(|it| of(it.map(|mark| mark.fingerprint.to_bytes())))),
            ],
        )
    }

    fn parked(&self, ns: i32, entities: &[&[u8]]) -> Statement {
        statement(PARKED, [ns.into(), bytes(entities.iter())])
    }

    fn park(&self, ns: i32, rows: &[Parking<'_>]) -> Statement {
        let there = |it: &Parking<'_>| {
            i32::from(it.record.key.is_some())
                | i32::from(it.record.payload.is_some()) << 1
                | i32::from(it.headers.is_some()) << 2
        };
        statement(
            PARK,
            [
                ns.into(),
                bytes(rows.iter().map(|it| it.entity)),
                longs(rows.iter().map(|it| it.revision)),
                bytes(rows.iter().map(|it| it.mark.id.to_bytes())),
                bytes(rows.iter().map(|it| it.mark.fingerprint.to_bytes())),
                texts(rows.iter().map(|it| &*it.record.partition.topic)),
                ints(rows.iter().map(|it| it.record.partition.partition)),
                longs(rows.iter().map(|it| it.record.offset)),
                longs(rows.iter().map(|it| it.record.timestamp)),
                bytes(rows.iter().map(|it| it.record.key.as_deref().unwrap_or_default())),
                bytes(rows.iter().map(|it| it.record.payload.as_deref().unwrap_or_default())),
                bytes(rows.iter().map(|it| it.headers.as_deref().unwrap_or_default())),
                ints(rows.iter().map(there)),
            ],
        )
    }

    fn take(&self, ns: i32, places: &[Place<'_>]) -> Statement {
        statement(
            TAKE,
            [
                ns.into(),
                bytes(places.iter().map(|(entity, _)| entity)),
                longs(places.iter().map(|(_, revision)| *revision)),
            ],
        )
    }
}

fn claimed(ns: i32, partition: &TopicPartition, markers: &[&Marker]) -> [Value; 5] {
    [
        ns.into(),
        (&*partition.topic).into(),
        partition.partition.into(),
        marks(markers.iter().map(|it| it.mark)),
        longs(markers.iter().map(|it| it.offset)),
    ]
}

fn statement<const N: usize>(sql: &str, values: [Value; N]) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

fn array<V: Into<Value>>(kind: ArrayType, values: impl Iterator<Item = V>) -> Value {
    Value::Array(kind, Some(Box::new(values.map(Into::into).collect())))
}

fn bytes(values: impl Iterator<Item = impl AsRef<[u8]>>) -> Value {
    array(ArrayType::Bytes, values.map(|it| it.as_ref().to_vec()))
}

/// Marks of 32 bytes each, one behind the other.
fn marks(values: impl Iterator<Item = Mark>) -> Value {
    values.flat_map(Mark::to_bytes).collect::<Vec<_>>().into()
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> Value {
    array(ArrayType::String, values)
}

fn longs(values: impl Iterator<Item = i64>) -> Value {
    array(ArrayType::BigInt, values)
}

fn ints(values: impl Iterator<Item = i32>) -> Value {
    array(ArrayType::Int, values)
}
