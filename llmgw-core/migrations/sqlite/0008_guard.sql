-- Once released, a migration is never edited: its digest is kept in every store.

-- What the rules of the guard did to a call, as JSON, and nothing of what the call said; absent when none matched.
ALTER TABLE usage ADD COLUMN guard TEXT;
CREATE INDEX usage_guarded ON usage (started_at) WHERE guard IS NOT NULL;
