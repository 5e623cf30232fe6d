-- Tidegate's tables for PostgreSQL 14 and later, version 1.

CREATE TABLE tidegate_schema (
    version integer PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now()
);

-- A namespace is one generation of a target.
CREATE TABLE tidegate_namespace (
    ns integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target text NOT NULL,
    generation bigint NOT NULL,
    UNIQUE (target, generation)
);

-- A partition that a namespace reads: the markers of [low, floor) are pruned,
-- [gap, resumed) was jumped over, and from there it has read on to `reached` at
-- least.
CREATE TABLE tidegate_source (
    low bigint NOT NULL,
    floor bigint NOT NULL,
    gap bigint NOT NULL,
    resumed bigint NOT NULL,
    reached bigint NOT NULL,
    source integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ns integer NOT NULL,
    part integer NOT NULL,
    topic text NOT NULL,
    topic_id text,
    UNIQUE (ns, topic, part)
) WITH (fillfactor = 50);

-- A marker for each message whose outcome is decided.
CREATE TABLE tidegate_inbox (
    at timestamptz NOT NULL DEFAULT now(),
    record_offset bigint NOT NULL,
    ns integer NOT NULL,
    source integer NOT NULL,
    id bytea NOT NULL,
    fp bytea NOT NULL,
    PRIMARY KEY (ns, id)
);

-- Pruning looks for a prefix of offsets. A block range holds a stretch of the
-- offsets of each partition that was read at that time.
CREATE INDEX tidegate_inbox_offsets ON tidegate_inbox
    USING brin (record_offset int8_minmax_multi_ops)
    WITH (pages_per_range = 32, autosummarize = on);

-- Where an entity stands, and how many of its deltas are parked. `slot` is
-- scratch paper of the statement that locks it, in place of padding.
CREATE TABLE tidegate_entity (
    rev bigint NOT NULL,
    ns integer NOT NULL,
    slot integer NOT NULL,
    held integer NOT NULL,
    ent bytea NOT NULL,
    last_id bytea,
    last_fp bytea,
    PRIMARY KEY (ns, ent)
) WITH (fillfactor = 70);

-- A record that waits for its predecessor; `withheld` says why it failed when
-- it was tried alone.
CREATE TABLE tidegate_parked (
    at timestamptz NOT NULL DEFAULT now(),
    rev bigint NOT NULL,
    record_offset bigint NOT NULL,
    record_ts bigint NOT NULL,
    ns integer NOT NULL,
    part integer NOT NULL,
    ent bytea NOT NULL,
    id bytea NOT NULL,
    fp bytea NOT NULL,
    topic text NOT NULL,
    record_key bytea,
    payload bytea,
    headers bytea,
    withheld text,
    PRIMARY KEY (ns, ent, rev)
);

CREATE INDEX tidegate_parked_age ON tidegate_parked (ns, at);

-- A record that cannot be applied. One that was parked before has a message id
-- and, in the inbox, a marker.
CREATE TABLE tidegate_dead_letter (
    at timestamptz NOT NULL DEFAULT now(),
    record_offset bigint NOT NULL,
    record_ts bigint NOT NULL,
    ns integer NOT NULL,
    part integer NOT NULL,
    topic text NOT NULL,
    id bytea,
    record_key bytea,
    payload bytea,
    headers bytea,
    class text NOT NULL,
    cause text NOT NULL,
    PRIMARY KEY (ns, topic, part, record_offset)
);

-- Who a partition belongs to, for the epoch guard.
CREATE TABLE tidegate_owner (
    incarnation bigint NOT NULL,
    generation integer NOT NULL,
    part integer NOT NULL,
    grp text NOT NULL,
    topic text NOT NULL,
    member text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (grp, topic, part)
) WITH (fillfactor = 50);

INSERT INTO tidegate_schema (version) VALUES (1);
