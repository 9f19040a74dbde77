-- Once released, a migration is never edited: its digest is kept in every store.

-- Every version of the cluster's own settings; rows are only ever added. `brings_back`: whose text a version has again.
CREATE TABLE llmgw.settings (
    version bigint PRIMARY KEY,
    document text NOT NULL,
    written_by text NOT NULL,
    written_at bigint NOT NULL,
    brings_back bigint
);
