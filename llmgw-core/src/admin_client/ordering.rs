//! What is ordered over HTTP, besides models: engines, holds, measurements, tokens.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::{Method, header::HeaderValue};

use super::{AdminClient, body, stream};
use crate::{
    api::{
        admin::EngineView,
        orders::{
            CapacityRequest, CreatedToken, EngineChosen, EngineLifted, EngineRequest, HoldLifted,
            HoldRequest, HoldView, TokenRequest, TokenRevoked, TokenView,
        },
    },
    cluster::{
        account::Role,
        capacity::{Capacity, Measurement},
        engine::WantedEngine,
    },
    control::{
        Acting, Actor, Capacities, Control, ControlError, Engines, Events, Following, Holds,
        Operators,
    },
    id::{EngineName, HoldName, ModelName, TokenId},
};

#[async_trait]
impl Engines for AdminClient {
    async fn engines(&self) -> Result<Vec<EngineView>, ControlError> {
        self.read("engines", None).await
    }

    async fn choose(&self, request: EngineRequest) -> Result<WantedEngine, ControlError> {
        let json = body("the choice", &request)?;
        let url = self.route(&["engines"]);
        let EngineChosen { chosen } = self.ask(Method::POST, url, Some(json)).await?;
        Ok(chosen)
    }

    async fn unchoose(&self, name: &EngineName) -> Result<EngineLifted, ControlError> {
        let url = self.route(&["engines", name.as_str()]);
        self.ask(Method::DELETE, url, None).await
    }
}

#[async_trait]
impl Holds for AdminClient {
    async fn holds(&self) -> Result<Vec<HoldView>, ControlError> {
        self.read("holds", None).await
    }

    async fn hold(&self, request: HoldRequest) -> Result<HoldView, ControlError> {
        let json = body("the hold", &request)?;
        let url = self.route(&["holds"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn lift(&self, name: &HoldName) -> Result<(), ControlError> {
        let url = self.route(&["holds", name.as_str()]);
        let _: HoldLifted = self.ask(Method::DELETE, url, None).await?;
        Ok(())
    }
}

#[async_trait]
impl Capacities for AdminClient {
    async fn capacities(&self) -> Result<Vec<Capacity>, ControlError> {
        self.read("capacity", None).await
    }

    async fn record(
        &self,
        model: &ModelName,
        measurement: Measurement,
    ) -> Result<Capacity, ControlError> {
        let json = body("the measurement", &CapacityRequest { measurement })?;
        let url = self.route(&["models", model.as_str(), "capacity"]);
        self.ask(Method::PUT, url, Some(json)).await
    }
}

#[async_trait]
impl Operators for AdminClient {
    async fn tokens(&self) -> Result<Vec<TokenView>, ControlError> {
        self.read("tokens", None).await
    }

    async fn create_token(&self, name: &str, role: Role) -> Result<CreatedToken, ControlError> {
        let name = name.to_owned();
        let json = body("the name", &TokenRequest { name, role })?;
        let url = self.route(&["tokens"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn revoke_token(&self, id: TokenId) -> Result<(), ControlError> {
        let url = self.route(&["tokens", &id.to_string()]);
        let _: TokenRevoked = self.ask(Method::DELETE, url, None).await?;
        Ok(())
    }
}

#[async_trait]
impl Events for AdminClient {
    async fn follow(&self) -> Result<Box<dyn Following>, ControlError> {
        let response = self.open(self.route(&["events"])).await?;
        Ok(Box::new(stream::Reader::of(self.base.clone(), response)))
    }
}

impl Acting for AdminClient {
    /// The control plane writes the name down beside that of the token's holder.
    fn acting_as(&self, actor: &Actor) -> Control {
        // A header carries ASCII; what is none is left for the control plane to see as `?`.
        let ascii: String = actor
            .as_str()
            .chars()
            .map(|c| if c.is_ascii() { c } else { '?' })
            .collect();
        let named = Self {
            actor: HeaderValue::from_str(&ascii).ok(),
            ..self.clone()
        };
        Arc::new(named).roles()
    }
}
