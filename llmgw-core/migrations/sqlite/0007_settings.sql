-- Once released, a migration is never edited: its digest is kept in every store.

-- Every version of the cluster's own settings; rows are only ever added. `brings_back`: whose text a version has again.
CREATE TABLE settings (
    version INTEGER PRIMARY KEY,
    document TEXT NOT NULL,
    written_by TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    brings_back INTEGER
) STRICT;
