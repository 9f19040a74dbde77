-- Once released, a migration is never edited: its digest is kept in every store.

-- What models cost, from when on: in millionths of the cluster's currency for a million tokens. A row outlives its model.
CREATE TABLE llmgw.price (
    model text COLLATE "C" NOT NULL,
    valid_from bigint NOT NULL,
    prompt bigint NOT NULL,
    cached bigint NOT NULL,
    completion bigint NOT NULL,
    PRIMARY KEY (model, valid_from)
);

-- The level of the key when the call was made, and what it cost by the price that was valid then.
ALTER TABLE llmgw.usage ADD COLUMN level text COLLATE "C" NOT NULL DEFAULT '/';
ALTER TABLE llmgw.usage ADD COLUMN cost bigint NOT NULL DEFAULT 0;
