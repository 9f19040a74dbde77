-- Once released, a migration is never edited: its digest is kept in every store.

-- What operators have ordered besides which models there are, and what the loop parked.
CREATE TABLE llmgw.standing_order (
    -- What it is about: a kind, and a name within that kind.
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- The order, who gave it and when, as JSON.
    definition text NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Who may use the admin API.
CREATE TABLE llmgw.operator_token (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    -- HMAC-SHA-256 of the secret; the secret is nowhere.
    hash bytea NOT NULL,
    created_at bigint NOT NULL
);

-- What models were measured to do; a row outlives its model.
CREATE TABLE llmgw.capacity (
    model text COLLATE "C" NOT NULL,
    profile text COLLATE "C" NOT NULL,
    -- The measurement as JSON.
    definition text NOT NULL,
    PRIMARY KEY (model, profile)
);
