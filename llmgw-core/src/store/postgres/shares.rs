//! What gateways have spent and hold of quotas.

use std::time::Duration;

use uuid::Uuid;

use super::{PostgresStore, bounded};
use crate::{
    cluster::tenancy::quota::{Quota, Share, ShareAsk, Standing},
    id::GatewayId,
    store::{
        StoreError,
        rows::{self, StandingRow, failed},
    },
};

impl PostgresStore {
    pub(super) async fn share_all(
        &self,
        (gateway, turn): (GatewayId, u64),
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        let doing = "sharing quotas among gateways";
        // In one order for all, so that no two wait for each other.
        let mut locks: Vec<i64> = asks.iter().map(|ask| ask.quota.lock()).collect();
        locks.sort_unstable();
        bounded(doing, async {
            let mut transaction = self.begin(doing).await?;
            sqlx::query(LOCK)
                .bind(locks)
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
            let mut shares = Vec::with_capacity(asks.len());
            for ask in asks {
                let (party, window) = (ask.quota.party_text(), ask.quota.window);
                let (measure, period) = (ask.quota.measure.as_str(), window.period.as_str());
                let found: StandingRow = sqlx::query_as(STANDING)
                    .bind(&party)
                    .bind(measure)
                    .bind(period)
                    .bind(window.begins.0)
                    .bind(gateway.as_uuid())
                    .fetch_one(&mut *transaction)
                    .await
                    .map_err(failed(doing))?;
                let (share, kept) = rows::standing(found).grant(turn, ask);
                shares.push(share);
                let Some(own) = kept else { continue };
                sqlx::query(KEEP)
                    .bind(&party)
                    .bind(measure)
                    .bind(period)
                    .bind(window.begins.0)
                    .bind(gateway.as_uuid())
                    .bind(rows::seq(own.spent))
                    .bind(rows::seq(own.held))
                    .bind(rows::seq(own.turn))
                    .bind(rows::ttl_millis(ttl))
                    .execute(&mut *transaction)
                    .await
                    .map_err(failed(doing))?;
            }
            if turn.is_multiple_of(rows::FORGET_EVERY) {
                for (period, millis) in rows::forgotten() {
                    sqlx::query(FORGET)
                        .bind(period)
                        .bind(millis)
                        .execute(&mut *transaction)
                        .await
                        .map_err(failed(doing))?;
                }
            }
            transaction.commit().await.map_err(failed(doing))?;
            Ok(shares)
        })
        .await
    }

    pub(super) async fn standings(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        let doing = "reading what was spent";
        bounded(doing, async {
            let mut standings = Vec::with_capacity(quotas.len());
            for quota in quotas {
                let found: StandingRow = sqlx::query_as(STANDING)
                    .bind(quota.party_text())
                    .bind(quota.measure.as_str())
                    .bind(quota.window.period.as_str())
                    .bind(quota.window.begins.0)
                    .bind(Uuid::nil())
                    .fetch_one(&self.pool)
                    .await
                    .map_err(failed(doing))?;
                standings.push(rows::standing(found));
            }
            Ok(standings)
        })
        .await
    }
}

/// In the order of the array: `unnest` gives its rows so, and nothing here puts them in another.
const LOCK: &str = "SELECT pg_advisory_xact_lock(lock) FROM unnest($1::bigint[]) AS lock";

/// What others have spent, hold, and are; what the own gateway told, was given, and when.
const STANDING: &str = "
    SELECT
        COALESCE(SUM(spent) FILTER (WHERE gateway <> $5), 0)::bigint,
        COALESCE(SUM(held) FILTER (WHERE gateway <> $5 AND expires_at > now.time), 0)::bigint,
        COUNT(*) FILTER (WHERE gateway <> $5 AND expires_at > now.time),
        MAX(spent) FILTER (WHERE gateway = $5),
        MAX(held) FILTER (WHERE gateway = $5),
        MAX(turn) FILTER (WHERE gateway = $5)
    FROM
        llmgw.quota_share,
        (SELECT clock_timestamp() AS time) AS now
    WHERE party = $1 AND measure = $2 AND period = $3 AND begins = $4";

const KEEP: &str = "
    INSERT INTO llmgw.quota_share (
        party, measure, period, begins, gateway, spent, held, turn, expires_at
    )
    VALUES (
        $1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp() + $9 * interval '1 millisecond'
    )
    ON CONFLICT (party, measure, period, begins, gateway) DO UPDATE SET
        spent = excluded.spent, held = excluded.held, turn = excluded.turn,
        expires_at = excluded.expires_at";

/// What no gateway has told of for a while: windows that ended long ago, and gateways that have spent nothing.
const FORGET: &str = "
    DELETE FROM llmgw.quota_share
    WHERE
        period = $1
        AND expires_at < clock_timestamp() - interval '10 minutes'
        AND (
            spent = 0
            OR begins + $2 < extract(epoch FROM clock_timestamp()) * 1000
        )";
