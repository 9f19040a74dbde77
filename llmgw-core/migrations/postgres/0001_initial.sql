-- Once released, a migration is never edited: its digest is kept in every store.
-- Times are milliseconds since the Unix epoch, except where PostgreSQL itself tells and compares them; spans are
-- microseconds. Names are compared byte by byte ("C"), whatever the database's language is.

CREATE TABLE llmgw.lease (
    id smallint PRIMARY KEY CHECK (id = 1),
    -- Only ever rises; also when the lease is given up.
    epoch bigint NOT NULL,
    -- NULL when it was given up.
    holder text,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

INSERT INTO llmgw.lease (id, epoch, holder, renewed_at, expires_at)
VALUES (1, 0, NULL, clock_timestamp(), clock_timestamp());

CREATE TABLE llmgw.model (
    name text COLLATE "C" PRIMARY KEY,
    -- The definition as JSON; as text, because jsonb refuses some texts that JSON allows.
    definition text NOT NULL,
    added_at bigint NOT NULL
);

CREATE TABLE llmgw.api_key (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- HMAC-SHA-256 of the secret; the secret is nowhere.
    hash bytea NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE llmgw.usage (
    request uuid PRIMARY KEY,
    api_key uuid NOT NULL,
    model text COLLATE "C" NOT NULL,
    replica uuid,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    estimated boolean NOT NULL,
    status integer NOT NULL,
    started_at bigint NOT NULL,
    duration bigint NOT NULL,
    time_to_first_token bigint
);

CREATE INDEX usage_started_at ON llmgw.usage (started_at);
