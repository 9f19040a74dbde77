//! What gateways have spent and hold of quotas.

use std::time::Duration;

use uuid::Uuid;

use super::SqliteStore;
use crate::{
    cluster::tenancy::quota::{Quota, Share, ShareAsk, Standing},
    id::GatewayId,
    store::{
        StoreError,
        rows::{self, StandingRow},
    },
};

impl SqliteStore {
    pub(super) async fn share_all(
        &self,
        (gateway, turn): (GatewayId, u64),
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        let doing = "sharing quotas among gateways";
        let mut transaction = self.begin(doing).await?;
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
                .map_err(self.failed(doing))?;
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
                .map_err(self.failed(doing))?;
        }
        if turn.is_multiple_of(rows::FORGET_EVERY) {
            for (period, millis) in rows::forgotten() {
                sqlx::query(FORGET)
                    .bind(period)
                    .bind(millis)
                    .execute(&mut *transaction)
                    .await
                    .map_err(self.failed(doing))?;
            }
        }
        transaction.commit().await.map_err(self.failed(doing))?;
        Ok(shares)
    }

    pub(super) async fn standings(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        let mut standings = Vec::with_capacity(quotas.len());
        for quota in quotas {
            let found: StandingRow = sqlx::query_as(STANDING)
                .bind(quota.party_text())
                .bind(quota.measure.as_str())
                .bind(quota.window.period.as_str())
                .bind(quota.window.begins.0)
                .bind(Uuid::nil())
                .fetch_one(&self.readers)
                .await
                .map_err(self.failed("reading what was spent"))?;
            standings.push(rows::standing(found));
        }
        Ok(standings)
    }
}

/// What others have spent, hold, and are; what the own gateway told, was given, and when.
const STANDING: &str = "
    SELECT
        COALESCE(SUM(spent) FILTER (WHERE gateway <> ?5), 0),
        COALESCE(SUM(held) FILTER (WHERE gateway <> ?5 AND expires_at > now.millis), 0),
        COUNT(*) FILTER (WHERE gateway <> ?5 AND expires_at > now.millis),
        MAX(spent) FILTER (WHERE gateway = ?5),
        MAX(held) FILTER (WHERE gateway = ?5),
        MAX(turn) FILTER (WHERE gateway = ?5)
    FROM
        quota_share,
        (SELECT CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) AS millis) AS now
    WHERE party = ?1 AND measure = ?2 AND period = ?3 AND begins = ?4";

const KEEP: &str = "
    INSERT INTO quota_share (party, measure, period, begins, gateway, spent, held, turn, expires_at)
    VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + ?9
    )
    ON CONFLICT (party, measure, period, begins, gateway) DO UPDATE SET
        spent = excluded.spent, held = excluded.held, turn = excluded.turn, expires_at = excluded.expires_at";

/// What no gateway has told of for a while: windows that ended long ago, and gateways that have spent nothing.
const FORGET: &str = "
    DELETE FROM quota_share
    WHERE
        period = ?1
        AND expires_at + 600000 < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)
        AND (
            spent = 0
            OR begins + ?2 < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)
        )";
