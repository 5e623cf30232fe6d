-- Tidegate's tables for SQLite 3.41 and later, version 1. Times are milliseconds
-- since the Unix epoch.

CREATE TABLE tidegate_schema (
    version INTEGER PRIMARY KEY,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

-- A namespace is one generation of a target.
CREATE TABLE tidegate_namespace (
    ns INTEGER PRIMARY KEY,
    target TEXT NOT NULL,
    generation INTEGER NOT NULL,
    UNIQUE (target, generation)
) STRICT;

-- A partition that a namespace reads: the markers of [low, floor) are pruned,
-- [gap, resumed) was jumped over, and from there it has read on to `reached` at
-- least.
CREATE TABLE tidegate_source (
    source INTEGER PRIMARY KEY,
    ns INTEGER NOT NULL,
    topic TEXT NOT NULL,
    part INTEGER NOT NULL,
    topic_id TEXT,
    low INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    gap INTEGER NOT NULL,
    resumed INTEGER NOT NULL,
    reached INTEGER NOT NULL,
    UNIQUE (ns, topic, part)
) STRICT;

-- A marker for each message whose outcome is decided.
CREATE TABLE tidegate_inbox (
    ns INTEGER NOT NULL,
    id BLOB NOT NULL,
    fp BLOB NOT NULL,
    source INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (ns, id)
) STRICT, WITHOUT ROWID;

-- Pruning looks for a prefix of offsets.
CREATE INDEX tidegate_inbox_offsets ON tidegate_inbox (source, record_offset);

-- Where an entity stands, and how many of its deltas are parked.
CREATE TABLE tidegate_entity (
    ns INTEGER NOT NULL,
    ent BLOB NOT NULL,
    rev INTEGER NOT NULL,
    held INTEGER NOT NULL,
    last_id BLOB,
    last_fp BLOB,
    PRIMARY KEY (ns, ent)
) STRICT, WITHOUT ROWID;

-- A record that waits for its predecessor; `withheld` says why it failed when
-- it was tried alone.
CREATE TABLE tidegate_parked (
    ns INTEGER NOT NULL,
    ent BLOB NOT NULL,
    rev INTEGER NOT NULL,
    id BLOB NOT NULL,
    fp BLOB NOT NULL,
    topic TEXT NOT NULL,
    part INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    record_ts INTEGER NOT NULL,
    record_key BLOB,
    payload BLOB,
    headers BLOB,
    withheld TEXT,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (ns, ent, rev)
) STRICT, WITHOUT ROWID;

CREATE INDEX tidegate_parked_age ON tidegate_parked (ns, at);

-- A record that cannot be applied. One that was parked before has a message id
-- and, in the inbox, a marker.
CREATE TABLE tidegate_dead_letter (
    ns INTEGER NOT NULL,
    topic TEXT NOT NULL,
    part INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    record_ts INTEGER NOT NULL,
    id BLOB,
    record_key BLOB,
    payload BLOB,
    headers BLOB,
    class TEXT NOT NULL,
    cause TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (ns, topic, part, record_offset)
) STRICT, WITHOUT ROWID;

-- Who a partition belongs to, for the epoch guard.
CREATE TABLE tidegate_owner (
    grp TEXT NOT NULL,
    topic TEXT NOT NULL,
    part INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    member TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (grp, topic, part)
) STRICT, WITHOUT ROWID;

INSERT INTO tidegate_schema (version) VALUES (1);
