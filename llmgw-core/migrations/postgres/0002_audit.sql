-- Once released, a migration is never edited: its digest is kept in every store.

CREATE TABLE llmgw.audit (
    -- 1, 2, 3 and so on, without gaps; a sequence would leave some.
    seq bigint PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    -- The hash of the entry before it.
    previous bytea NOT NULL,
    hash bytea NOT NULL
);

-- What the next entry is bound to; locked by whoever appends. It is kept apart, so that the numbers of entries that
-- someone removed from the end by hand are not given again, and the gap stays to be seen.
CREATE TABLE llmgw.audit_head (
    id smallint PRIMARY KEY CHECK (id = 1),
    seq bigint NOT NULL,
    hash bytea NOT NULL
);

INSERT INTO llmgw.audit_head (id, seq, hash) VALUES (1, 0, decode(repeat('00', 32), 'hex'));
