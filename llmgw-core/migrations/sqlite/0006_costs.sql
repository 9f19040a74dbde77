-- Once released, a migration is never edited: its digest is kept in every store.

-- What models cost, from when on: in millionths of the cluster's currency for a million tokens. A row outlives its model.
CREATE TABLE price (
    model TEXT NOT NULL,
    valid_from INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    PRIMARY KEY (model, valid_from)
) STRICT, WITHOUT ROWID;

-- The level of the key when the call was made, and what it cost by the price that was valid then.
ALTER TABLE usage ADD COLUMN level TEXT NOT NULL DEFAULT '/';
ALTER TABLE usage ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;
