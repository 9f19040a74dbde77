-- Once released, a migration is never edited: its digest is kept in every store.

-- Organisations, their teams, and these teams' projects; and the cluster, once it is limited.
CREATE TABLE level (
    -- '/' for the cluster, else names with slashes between them.
    path TEXT PRIMARY KEY,
    -- What holds for all keys beneath it, as JSON.
    limits TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Keys that were made before there were levels are the cluster's own.
ALTER TABLE api_key ADD COLUMN level TEXT NOT NULL DEFAULT '/';
-- NULL when it never ends by itself.
ALTER TABLE api_key ADD COLUMN expires_at INTEGER;
ALTER TABLE api_key ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
