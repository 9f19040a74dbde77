-- Once released, a migration is never edited: its digest is kept in every store.

-- What operators have ordered besides which models there are, and what the loop parked.
CREATE TABLE standing_order (
    -- What it is about: a kind, and a name within that kind.
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The order, who gave it and when, as JSON.
    definition TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Who may use the admin API.
CREATE TABLE operator_token (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    -- HMAC-SHA-256 of the secret; the secret is nowhere.
    hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What models were measured to do; a row outlives its model.
CREATE TABLE capacity (
    model TEXT NOT NULL,
    profile TEXT NOT NULL,
    -- The measurement as JSON.
    definition TEXT NOT NULL,
    PRIMARY KEY (model, profile)
) STRICT, WITHOUT ROWID;
