-- Once released, a migration is never edited: its digest is kept in every store.

-- Organisations, their teams, and these teams' projects; and the cluster, once it is limited.
CREATE TABLE llmgw.level (
    -- '/' for the cluster, else names with slashes between them.
    path text COLLATE "C" PRIMARY KEY,
    -- What holds for all keys beneath it, as JSON.
    limits text NOT NULL,
    created_at bigint NOT NULL
);

-- Keys that were made before there were levels are the cluster's own.
ALTER TABLE llmgw.api_key ADD COLUMN level text COLLATE "C" NOT NULL DEFAULT '/';
-- NULL when it never ends by itself.
ALTER TABLE llmgw.api_key ADD COLUMN expires_at bigint;
ALTER TABLE llmgw.api_key ADD COLUMN limits text NOT NULL DEFAULT '{}';
