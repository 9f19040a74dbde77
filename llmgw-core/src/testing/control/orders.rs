//! What is ordered of a control plane in memory, besides models and nodes.

use async_trait::async_trait;

use super::MemoryControl;
use crate::{
    api::{
        admin::EngineView,
        event::Event,
        orders::{CreatedToken, EngineLifted, EngineRequest, HoldRequest, HoldView, TokenView},
    },
    clock::Timestamp,
    cluster::{
        account::Role,
        capacity::{Capacity, Measurement},
        engine::{EngineSource, WantedEngine},
        order::{Order, Subject},
    },
    control::{
        Acting, Actor, Capacities, Control, ControlError, Engines, Events, Following, Holds,
        Operators, check_choice, check_hold, check_key_name, check_measurement, check_unchoosing,
        engines, hold_view, not_chosen, ordered, unknown_hold, unknown_token,
    },
    id::{EngineName, HoldName, ModelName, TokenId},
};

#[async_trait]
impl Engines for MemoryControl {
    async fn engines(&self) -> Result<Vec<EngineView>, ControlError> {
        let state = self.answering()?;
        let wanted = state.orders.engines_over(&settings_engines());
        Ok(engines(&wanted, &state.orders, &state.nodes))
    }

    async fn choose(&self, request: EngineRequest) -> Result<WantedEngine, ControlError> {
        let mut state = self.answering()?;
        let in_force = state.orders.engines_over(&settings_engines());
        let chosen = check_choice(request, &in_force)?;
        let subject = ordered(chosen.name.as_str(), &chosen.without_secrets());
        state.note(self.actor(), "engine.set", &subject);
        state.put(self.actor(), Order::Engine(Box::new(chosen.clone())));
        Ok(chosen)
    }

    async fn unchoose(&self, name: &EngineName) -> Result<EngineLifted, ControlError> {
        let mut state = self.answering()?;
        let subject = Subject::Engine(name.clone());
        if state.orders.get(&subject).is_none() {
            return Err(not_chosen(name));
        }
        let models = state.models.values().map(|kept| &kept.model);
        let wanted = check_unchoosing(name, &settings_engines(), models)?;
        state.note(self.actor(), "engine.unset", name.as_str());
        state.orders.lift(&subject);
        Ok(EngineLifted {
            lifted: name.clone(),
            wanted,
        })
    }
}

#[async_trait]
impl Holds for MemoryControl {
    async fn holds(&self) -> Result<Vec<HoldView>, ControlError> {
        let state = self.answering()?;
        Ok(state.orders.iter().filter_map(hold_view).collect())
    }

    async fn hold(&self, request: HoldRequest) -> Result<HoldView, ControlError> {
        let mut state = self.answering()?;
        let knows = |node| state.nodes.iter().any(|known| known.id == node);
        let hold = check_hold(request, knows, &state.pools, Timestamp(0))?;
        let subject = Subject::Hold(hold.name.clone());
        let noted = ordered(hold.name.as_str(), &hold);
        state.note(self.actor(), "hold.set", &noted);
        state.put(self.actor(), Order::Hold(hold));
        let view = state.orders.get(&subject).and_then(hold_view);
        view.ok_or_else(|| unknown_hold_of(&subject))
    }

    async fn lift(&self, name: &HoldName) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        if !state.orders.lift(&Subject::Hold(name.clone())) {
            return Err(unknown_hold(name));
        }
        state.note(self.actor(), "hold.lift", name.as_str());
        Ok(())
    }
}

#[async_trait]
impl Capacities for MemoryControl {
    async fn capacities(&self) -> Result<Vec<Capacity>, ControlError> {
        Ok(self.answering()?.capacities.values().cloned().collect())
    }

    async fn record(
        &self,
        model: &ModelName,
        measurement: Measurement,
    ) -> Result<Capacity, ControlError> {
        let mut state = self.answering()?;
        let kept = state.resolve(model)?;
        check_measurement(&kept.model, &measurement)?;
        let model = kept.model.name().clone();
        let subject = ordered(model.as_str(), &measurement);
        state.note(self.actor(), "model.capacity", &subject);
        let capacity = Capacity {
            model: model.clone(),
            measurement,
            measured_by: self.actor().to_owned(),
            measured_at: Timestamp(0),
        };
        let place = (model, capacity.measurement.profile.clone());
        state.capacities.insert(place, capacity.clone());
        Ok(capacity)
    }
}

#[async_trait]
impl Operators for MemoryControl {
    async fn tokens(&self) -> Result<Vec<TokenView>, ControlError> {
        Ok(self.answering()?.tokens.values().cloned().collect())
    }

    async fn create_token(&self, name: &str, role: Role) -> Result<CreatedToken, ControlError> {
        let name = check_key_name(name)?;
        let mut state = self.answering()?;
        let token = TokenView {
            id: TokenId::generate(),
            name: name.to_owned(),
            role,
            created_at: Timestamp(0),
        };
        state.note(self.actor(), "token.create", &token.id.to_string());
        state.tokens.insert(token.id, token.clone());
        // It opens nothing: there is no admin API here. Unique all the same, as a secret is.
        let secret = format!("op-llmgw-{}", token.id.as_uuid().simple());
        Ok(CreatedToken { token, secret })
    }

    async fn revoke_token(&self, id: TokenId) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        if state.tokens.remove(&id).is_none() {
            return Err(unknown_token(id));
        }
        state.note(self.actor(), "token.revoke", &id.to_string());
        Ok(())
    }
}

#[async_trait]
impl Events for MemoryControl {
    /// The decisions that are kept, and nothing after them.
    async fn follow(&self) -> Result<Box<dyn Following>, ControlError> {
        let state = self.answering()?;
        let decision = |decision: &crate::api::decision::Decision| Event::Decision {
            decision: Box::new(decision.clone()),
        };
        let mut events: Vec<Event> = state.decisions.iter().map(decision).collect();
        events.reverse();
        Ok(Box::new(Replayed(events)))
    }
}

impl Acting for MemoryControl {
    fn acting_as(&self, actor: &Actor) -> Control {
        self.for_actor(actor).control()
    }
}

/// What is left to tell, the next one last.
#[derive(Debug)]
struct Replayed(Vec<Event>);

#[async_trait]
impl Following for Replayed {
    async fn next(&mut self) -> Option<Result<Event, ControlError>> {
        self.0.pop().map(Ok)
    }
}

/// What the settings of such a control plane say.
pub(super) fn settings_engines() -> Vec<WantedEngine> {
    let name: Option<EngineName> = "llamacpp".parse().ok();
    name.map(|name| WantedEngine::new(name, EngineSource::Auto))
        .into_iter()
        .collect()
}

fn unknown_hold_of(subject: &Subject) -> ControlError {
    ControlError::new(crate::error::Code::Internal, format!("{subject} is lost"))
}
