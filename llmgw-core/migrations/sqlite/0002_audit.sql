-- Once released, a migration is never edited: its digest is kept in every store.

CREATE TABLE audit (
    -- 1, 2, 3 and so on, without gaps.
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    -- The hash of the entry before it.
    previous BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- What the next entry is bound to. It is kept apart, so that the numbers of entries that someone removed from the
-- end by hand are not given again, and the gap stays to be seen.
CREATE TABLE audit_head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, zeroblob(32));
