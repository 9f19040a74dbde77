-- Once released, a migration is never edited: its digest is kept in every store.
-- Times are milliseconds since the Unix epoch; spans are microseconds; ids are the 16 bytes of a UUID.

CREATE TABLE lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- Only ever rises; also when the lease is given up.
    epoch INTEGER NOT NULL,
    -- NULL when it was given up.
    holder TEXT,
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

INSERT INTO lease (id, epoch, holder, renewed_at, expires_at) VALUES (1, 0, NULL, 0, 0);

CREATE TABLE model (
    name TEXT PRIMARY KEY,
    -- The definition as JSON.
    definition TEXT NOT NULL,
    added_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_key (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    -- HMAC-SHA-256 of the secret; the secret is nowhere.
    hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
    request BLOB PRIMARY KEY,
    api_key BLOB NOT NULL,
    model TEXT NOT NULL,
    replica BLOB,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    status INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    time_to_first_token INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_started_at ON usage (started_at);
