//! What is sent for each order, and what comes back.

use llmgw_core::{
    api::{
        orders::{
            EngineRequest, HoldRequest, NodeStateRequest, NodeUse, RollRequest, ScaleRequest,
        },
        tenancy::{KeyRequest, LevelRequest},
        usage::PriceRequest,
    },
    cluster::{
        account::Role,
        capacity::Measurement,
        order::HoldScope,
        tenancy::{LevelPath, Limits},
        weights::Sha256Digest,
    },
    control::{
        Accounts as _, Audit as _, Capacities as _, Catalog as _, Engines as _, Fleet as _,
        Holds as _, Jobs as _, Operators as _, Storage as _, Tenancy as _,
    },
    id::{EngineName, HoldName, KeyId, ModelName, TokenId},
    units::Micros,
};
use pyo3::prelude::*;
use serde_json::Value;

use super::Orders;
use crate::{
    convert::{Plain, from_python, parsed, plain},
    error::Error,
};

/// Each question once; asked by blocking and by awaiting.
impl Orders {
    pub(super) fn ask_engines(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.engines().await?) }
    }

    pub(super) fn ask_choose_engine(
        &self,
        name: &str,
        version: Option<String>,
        source: Option<String>,
        variant: Option<String>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = EngineRequest {
            name: parsed("name", name)?,
            version,
            source,
            variant,
        };
        let admin = self.0.clone();
        Ok(async move { plain(&admin.choose(request).await?) })
    }

    pub(super) fn ask_unset_engine(
        &self,
        name: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: EngineName = parsed("name", name)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.unchoose(&name).await?) })
    }

    pub(super) fn ask_scale(
        &self,
        model: &str,
        min_replicas: Option<u32>,
        max_replicas: Option<u32>,
        idle_timeout: Option<&str>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: ModelName = parsed("model", model)?;
        let idle_timeout = idle_timeout
            .map(|text| parsed("idle_timeout", text))
            .transpose()?;
        let scale = ScaleRequest {
            min: min_replicas,
            max: max_replicas,
            idle_timeout,
        };
        let admin = self.0.clone();
        Ok(async move { plain(&admin.scale(&name, scale).await?) })
    }

    pub(super) fn ask_roll(
        &self,
        model: &str,
        force: bool,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: ModelName = parsed("model", model)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.roll(&name, RollRequest { force }).await?) })
    }

    pub(super) fn ask_use_node(
        &self,
        node: &str,
        state: &str,
        reason: &str,
        force: bool,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let wanted = NodeStateRequest {
            state: node_use(state)?,
            reason: reason.to_owned(),
            force,
        };
        let node = node.to_owned();
        let admin = self.0.clone();
        Ok(async move { plain(&admin.use_node(&node, wanted).await?) })
    }

    pub(super) fn ask_thaw(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.thaw().await?) }
    }

    pub(super) fn ask_holds(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.holds().await?) }
    }

    pub(super) fn ask_hold(
        &self,
        name: &str,
        facility: Option<String>,
        pool: Option<String>,
        node: Option<&str>,
        reason: &str,
        lasts: Option<&str>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = HoldRequest {
            name: parsed("name", name)?,
            scope: scope(facility, pool, node)?,
            reason: reason.to_owned(),
            lasts: lasts.map(|text| parsed("lasts", text)).transpose()?,
        };
        let admin = self.0.clone();
        Ok(async move { plain(&admin.hold(request).await?) })
    }

    pub(super) fn ask_lift(
        &self,
        name: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: HoldName = parsed("name", name)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.lift(&name).await?) })
    }

    pub(super) fn ask_capacities(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.capacities().await?) }
    }

    pub(super) fn ask_record_capacity(
        &self,
        model: &str,
        measurement: &Bound<'_, PyAny>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: ModelName = parsed("model", model)?;
        let measurement: Measurement = from_python("measurement", measurement)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.record(&name, measurement).await?) })
    }

    pub(super) fn ask_keys(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.keys().await?) }
    }

    pub(super) fn ask_create_key(
        &self,
        name: &str,
        level: &str,
        expires_in: Option<&str>,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = KeyRequest {
            name: name.to_owned(),
            level: parsed("level", level)?,
            expires_in: expires_in
                .map(|text| parsed("expires_in", text))
                .transpose()?,
            limits: limits_of(limits)?,
        };
        let admin = self.0.clone();
        Ok(async move { plain(&admin.create_key(request).await?) })
    }

    pub(super) fn ask_limit_key(
        &self,
        id: &str,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let id: KeyId = parsed("id", id)?;
        let limits = limits_of(limits)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.limit_key(id, limits).await?) })
    }

    pub(super) fn ask_revoke_key(
        &self,
        id: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let id: KeyId = parsed("id", id)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.revoke_key(id).await?) })
    }

    pub(super) fn ask_prices(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.prices().await?) }
    }

    pub(super) fn ask_set_price(
        &self,
        model: &str,
        prompt: i64,
        completion: i64,
        cached: Option<i64>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = PriceRequest {
            model: parsed("model", model)?,
            prompt: Micros(prompt),
            cached: cached.map(Micros),
            completion: Micros(completion),
        };
        let admin = self.0.clone();
        Ok(async move { plain(&admin.set_price(request).await?) })
    }

    pub(super) fn ask_levels(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.levels().await?) }
    }

    pub(super) fn ask_create_level(
        &self,
        level: &str,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = level_request(level, limits)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.create_level(request).await?) })
    }

    pub(super) fn ask_limit_level(
        &self,
        level: &str,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let request = level_request(level, limits)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.limit_level(request).await?) })
    }

    pub(super) fn ask_remove_level(
        &self,
        level: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let path: LevelPath = parsed("level", level)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.remove_level(&path).await?) })
    }

    pub(super) fn ask_tokens(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.tokens().await?) }
    }

    pub(super) fn ask_create_token(
        &self,
        name: &str,
        role: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let role: Role = parsed("role", role)?;
        let name = name.to_owned();
        let admin = self.0.clone();
        Ok(async move { plain(&admin.create_token(&name, role).await?) })
    }

    pub(super) fn ask_revoke_token(
        &self,
        id: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let id: TokenId = parsed("id", id)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.revoke_token(id).await?) })
    }

    pub(super) fn ask_jobs(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.jobs().await?) }
    }

    pub(super) fn ask_audit(
        &self,
        after: u64,
        limit: u32,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.audit(after, limit).await?) }
    }

    pub(super) fn ask_decisions(
        &self,
        model: Option<&str>,
        after: u64,
        limit: u32,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let model: Option<ModelName> = model.map(|text| parsed("model", text)).transpose()?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.decisions(model.as_ref(), after, limit).await?) })
    }

    pub(super) fn ask_logs(
        &self,
        model: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let name: ModelName = parsed("model", model)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.logs(&name).await?) })
    }

    pub(super) fn ask_orphans(
        &self,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.orphans().await?) }
    }

    pub(super) fn ask_collect(
        &self,
        digests: Vec<String>,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let digests = digests
            .iter()
            .map(|text| parsed("digests", text))
            .collect::<Result<Vec<Sha256Digest>, _>>()?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.collect(&digests).await?) })
    }
}

fn level_request(level: &str, limits: Option<&Bound<'_, PyAny>>) -> Result<LevelRequest, Error> {
    Ok(LevelRequest {
        path: parsed("level", level)?,
        limits: limits_of(limits)?,
    })
}

fn limits_of(limits: Option<&Bound<'_, PyAny>>) -> Result<Limits, Error> {
    let limits = limits.map(|limits| from_python("limits", limits));
    Ok(limits.transpose()?.unwrap_or_default())
}

fn node_use(state: &str) -> Result<NodeUse, Error> {
    match state {
        "ready" => Ok(NodeUse::Ready),
        "cordoned" => Ok(NodeUse::Cordoned),
        "draining" => Ok(NodeUse::Draining),
        _ => Err(Error::invalid(
            "state",
            "there are ready, cordoned and draining",
        )),
    }
}

fn scope(
    facility: Option<String>,
    pool: Option<String>,
    node: Option<&str>,
) -> Result<HoldScope, Error> {
    match (facility, pool, node) {
        (Some(facility), None, None) => Ok(HoldScope::Facility(facility)),
        (None, Some(pool), None) => Ok(HoldScope::Pool(pool)),
        (None, None, Some(node)) => Ok(HoldScope::Node(parsed("node", node)?)),
        _ => Err(Error::invalid(
            "facility",
            "name one of facility, pool and node",
        )),
    }
}
