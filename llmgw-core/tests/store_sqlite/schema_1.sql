-- A store of the first release: made and dumped by it, and a key and a call added by hand. Never edited.
BEGIN TRANSACTION;
CREATE TABLE api_key (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    -- HMAC-SHA-256 of the secret; the secret is nowhere.
    hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "api_key" VALUES(X'0192F3A4B5C67D8E9FA0B1C2D3E4F506','ops',X'0000000000000000000000000000000000000000000000000000000000000000',1750000000123);
CREATE TABLE lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- Only ever rises; also when the lease is given up.
    epoch INTEGER NOT NULL,
    -- NULL when it was given up.
    holder TEXT,
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
INSERT INTO "lease" VALUES(1,1,'writer',1796032311891,1796032911891);
CREATE TABLE migration (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO "migration" VALUES(1,'initial','2026-11-30 09:51:51',1,X'F516B8BBED432C20D0F6574CC54781C75BC0545DFA8A3EF2E5FF0FDB2BF1895C40146E88F3ED5D93785FFB32EF5D743B',649266);
CREATE TABLE model (
    name TEXT PRIMARY KEY,
    -- The definition as JSON.
    definition TEXT NOT NULL,
    added_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "model" VALUES('r0-0','{"name":"r0-0","source":["file:/models/tiny.gguf"],"replicas":1,"profiles":[{"name":"default","engine":"llamacpp","memory":1073741824,"context":4096,"parallel":4}]}',0);
INSERT INTO "model" VALUES('r0-1','{"name":"r0-1","source":["file:/models/tiny.gguf"],"replicas":1,"profiles":[{"name":"default","engine":"llamacpp","memory":1073741824,"context":4096,"parallel":4}]}',0);
CREATE TABLE usage (
    request BLOB PRIMARY KEY,
    api_key BLOB NOT NULL,
    model TEXT NOT NULL,
    replica BLOB,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    status INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    time_to_first_token INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "usage" VALUES(X'0192F3A4B5C67D8E9FA0B1C2D3E4F507',X'0192F3A4B5C67D8E9FA0B1C2D3E4F506','r0-0',NULL,100,10,7,0,200,1750000000123,1000,NULL);
CREATE INDEX usage_started_at ON usage (started_at);
COMMIT;
