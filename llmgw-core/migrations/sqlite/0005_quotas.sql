-- Once released, a migration is never edited: its digest is kept in every store.

-- What each gateway has spent, and holds besides, of what a party may use of a measure within a window of time. What is
-- left of a limit is what all of them leave.
CREATE TABLE quota_share (
    -- 'key:' and an id, or 'level:' and a path.
    party TEXT NOT NULL,
    measure TEXT NOT NULL,
    period TEXT NOT NULL,
    begins INTEGER NOT NULL,
    gateway BLOB NOT NULL,
    spent INTEGER NOT NULL,
    held INTEGER NOT NULL,
    -- Of the call that told this: what an earlier one says comes too late.
    turn INTEGER NOT NULL,
    -- When what is held counts for nothing any more; what was spent counts for ever.
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (party, measure, period, begins, gateway)
) STRICT, WITHOUT ROWID;

CREATE INDEX quota_share_window ON quota_share (period, begins);
