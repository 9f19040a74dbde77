-- Once released, a migration is never edited: its digest is kept in every store.

-- What each gateway has spent, and holds besides, of what a party may use of a measure within a window of time. What is
-- left of a limit is what all of them leave.
CREATE TABLE llmgw.quota_share (
    -- 'key:' and an id, or 'level:' and a path.
    party text COLLATE "C" NOT NULL,
    measure text COLLATE "C" NOT NULL,
    period text COLLATE "C" NOT NULL,
    begins bigint NOT NULL,
    gateway uuid NOT NULL,
    spent bigint NOT NULL,
    held bigint NOT NULL,
    -- Of the call that told this: what an earlier one says comes too late.
    turn bigint NOT NULL,
    -- When what is held counts for nothing any more; what was spent counts for ever.
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (party, measure, period, begins, gateway)
);

CREATE INDEX quota_share_window ON llmgw.quota_share (period, begins);
