//! What operators order besides which models there are: each is kept in the store, and then told to the loop.

use std::sync::Arc;

use async_trait::async_trait;
use llmgw_core::{
    api::{
        admin::{EngineView, Origin},
        frozen::Thawed,
        orders::{
            CreatedToken, EngineLifted, EngineRequest, HoldRequest, HoldView, NodeStateRequest,
            NodeStateView, RollRequest, Rolled, ScaleRequest, Scaled, TokenView,
        },
    },
    cluster::{
        account::{OperatorToken, Role},
        capacity::{Capacity, Measurement},
        engine::WantedEngine,
        node::NodeState,
        order::{Order, StoredOrder, Subject},
    },
    control::{
        Acting, Actor, Capacities, Control, ControlError, Engines, Holds, Operators, check_choice,
        check_hold, check_key_name, check_measurement, check_node_order, check_scaling,
        check_unchoosing, engines, hold_view, is_declared, named_node, node_subject, not_chosen,
        nothing_frozen, nothing_to_roll, ordered, roll_subject, token_view, unknown_hold,
        unknown_token,
    },
    error::{Chain, Code},
    id::{EngineName, HoldName, ModelName, NodeId, TokenId},
    keys::{Secret, TokenRing},
    store::Write,
};

use super::{
    ControllerHandle, Shared,
    roles::{from_store, known},
    views,
};
use crate::conductor::{Event, snapshot::Snapshot};

impl ControllerHandle {
    pub(super) async fn scale_model(
        &self,
        name: &ModelName,
        scale: ScaleRequest,
    ) -> Result<Scaled, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let entry = known(&snapshot, &name)?;
            let model = entry.model.name().clone();
            if entry.origin == Origin::Declared {
                return Err(is_declared(&model));
            }
            let scaling = check_scaling(scale, snapshot.completed(entry).scaling())?;
            let order = Order::Scale {
                model: model.clone(),
                scaling,
            };
            shared
                .order(
                    &actor,
                    "model.scale",
                    &ordered(model.as_str(), &scaling),
                    order,
                )
                .await?;
            Ok((model, scaling).into())
        })
        .await
    }

    pub(super) async fn roll_model(
        &self,
        name: &ModelName,
        roll: RollRequest,
    ) -> Result<Rolled, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let model = known(&snapshot, &name)?.model.name().clone();
            let now = shared.clock.monotonic();
            let replicas = views::replicas(&snapshot, Some(&model), None, now);
            let stale = views::stale(&replicas);
            if stale == 0 {
                return Err(nothing_to_roll(&model));
            }
            let number = snapshot.next_roll(&model);
            let order = Order::Roll {
                model: model.clone(),
                number,
                force: roll.force,
            };
            let subject = roll_subject(&model, roll);
            shared.order(&actor, "model.roll", &subject, order).await?;
            Ok(Rolled {
                rolling: model,
                number,
                stale,
                force: roll.force,
            })
        })
        .await
    }

    pub(super) async fn order_node(
        &self,
        name: &str,
        wanted: NodeStateRequest,
    ) -> Result<NodeStateView, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.to_owned();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let id = node(&snapshot, &name)?;
            let subject = node_subject(id, &wanted);
            match check_node_order(id, wanted)? {
                Some(order) => {
                    let order = Order::Node(order);
                    shared.order(&actor, "node.state", &subject, order).await?;
                }
                None => {
                    let lifted = Subject::Node(id);
                    shared.lift(&actor, "node.state", &subject, lifted).await?;
                }
            }
            let (snapshot, now) = (shared.snapshot(), shared.clock.monotonic());
            let observed = snapshot.observed.nodes.get(&id);
            let state = observed.map_or(NodeState::Lost, |observed| {
                views::node_state(&snapshot, id, observed, now)
            });
            Ok(NodeStateView { id, state })
        })
        .await
    }

    pub(super) async fn thaw_moves(&self) -> Result<Thawed, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let now = shared.clock.monotonic();
            let thawed = views::frozen(&shared.snapshot(), now).ok_or_else(nothing_frozen)?;
            shared
                .commit(&actor, "fleet.thaw", &thawed.subject(), &[])
                .await?;
            shared.tell(Event::Thaw).await?;
            Ok(Thawed { thawed })
        })
        .await
    }
}

#[async_trait]
impl Engines for ControllerHandle {
    async fn engines(&self) -> Result<Vec<EngineView>, ControlError> {
        let shared = &self.shared;
        let (snapshot, now) = (shared.snapshot(), shared.clock.monotonic());
        let told = shared.in_force.borrow().view.engines.clone();
        let wanted = snapshot.orders.engines_over(&told);
        let nodes = views::nodes(&snapshot, now);
        Ok(engines(&wanted, &snapshot.orders, &nodes))
    }

    async fn choose(&self, request: EngineRequest) -> Result<WantedEngine, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let in_force = shared.engines.borrow().clone();
            let chosen = check_choice(request, &in_force)?;
            let order = Order::Engine(Box::new(chosen.clone()));
            shared
                .order(
                    &actor,
                    "engine.set",
                    &ordered(chosen.name.as_str(), &chosen.without_secrets()),
                    order,
                )
                .await?;
            Ok(chosen.without_secrets())
        })
        .await
    }

    async fn unchoose(&self, name: &EngineName) -> Result<EngineLifted, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let subject = Subject::Engine(name.clone());
            if snapshot.orders.get(&subject).is_none() {
                return Err(not_chosen(&name));
            }
            let models = snapshot.entries.values().map(|entry| &entry.model);
            let told = shared.in_force.borrow().view.engines.clone();
            let wanted = check_unchoosing(&name, &told, models)?;
            shared
                .lift(&actor, "engine.unset", name.as_str(), subject)
                .await?;
            Ok(EngineLifted {
                lifted: name,
                wanted,
            })
        })
        .await
    }
}

#[async_trait]
impl Holds for ControllerHandle {
    async fn holds(&self) -> Result<Vec<HoldView>, ControlError> {
        let snapshot = self.shared.snapshot();
        let now = self.shared.clock.now();
        let stands = |stored: &&StoredOrder| match &stored.order {
            Order::Hold(hold) => !hold.has_ended(now),
            _ => false,
        };
        let standing = snapshot.orders.iter().filter(stands);
        Ok(standing.filter_map(hold_view).collect())
    }

    async fn hold(&self, request: HoldRequest) -> Result<HoldView, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let knows = |node| snapshot.observed.nodes.contains_key(&node);
            let hold = check_hold(request, knows, &snapshot.pools, shared.clock.now())?;
            let name = hold.name.clone();
            let subject = ordered(name.as_str(), &hold);
            let order = Order::Hold(hold);
            let stored = shared.order(&actor, "hold.set", &subject, order).await?;
            hold_view(&stored).ok_or_else(|| unknown_hold(&name))
        })
        .await
    }

    async fn lift(&self, name: &HoldName) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let subject = Subject::Hold(name.clone());
            let snapshot = shared.snapshot();
            let now = shared.clock.now();
            if snapshot.orders.holds(now).all(|hold| hold.name != name) {
                return Err(unknown_hold(&name));
            }
            shared
                .lift(&actor, "hold.lift", name.as_str(), subject)
                .await
        })
        .await
    }
}

#[async_trait]
impl Capacities for ControllerHandle {
    async fn capacities(&self) -> Result<Vec<Capacity>, ControlError> {
        let kept = self.shared.store.capacities().await;
        kept.map_err(|error| from_store(&error))
    }

    async fn record(
        &self,
        model: &ModelName,
        measurement: Measurement,
    ) -> Result<Capacity, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let model = model.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let entry = known(&snapshot, &model)?;
            check_measurement(&entry.model, &measurement)?;
            let capacity = Capacity {
                model: entry.model.name().clone(),
                measurement,
                measured_by: actor.to_string(),
                measured_at: shared.clock.now(),
            };
            let subject = ordered(capacity.model.as_str(), &capacity.measurement);
            let writes = [Write::PutCapacity(Box::new(capacity.clone()))];
            shared
                .commit(&actor, "model.capacity", &subject, &writes)
                .await?;
            Ok(capacity)
        })
        .await
    }
}

#[async_trait]
impl Operators for ControllerHandle {
    async fn tokens(&self) -> Result<Vec<TokenView>, ControlError> {
        let tokens = self.shared.store.tokens().await;
        let tokens = tokens.map_err(|error| from_store(&error))?;
        Ok(tokens.iter().map(token_view).collect())
    }

    async fn create_token(&self, name: &str, role: Role) -> Result<CreatedToken, ControlError> {
        let name = check_key_name(name)?.to_owned();
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let secret = Secret::generate_token()
                .map_err(|error| ControlError::new(Code::Internal, Chain(&error).to_string()))?;
            let token = OperatorToken {
                id: TokenId::generate(),
                name,
                role,
                hash: shared.hashing_key.hash(secret.expose()),
                created_at: shared.clock.now(),
            };
            let subject = format!("{} {} {}", token.id, token.role, token.name);
            let writes = [Write::AddToken(token.clone())];
            shared
                .commit(&actor, "token.create", &subject, &writes)
                .await?;
            shared.reload_tokens().await?;
            Ok(CreatedToken {
                token: token_view(&token),
                secret: secret.expose().to_owned(),
            })
        })
        .await
    }

    async fn revoke_token(&self, id: TokenId) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let tokens = shared.store.tokens().await;
            let tokens = tokens.map_err(|error| from_store(&error))?;
            if tokens.iter().all(|token| token.id != id) {
                return Err(unknown_token(id));
            }
            let writes = [Write::RemoveToken(id)];
            shared
                .commit(&actor, "token.revoke", &id.to_string(), &writes)
                .await?;
            shared.reload_tokens().await
        })
        .await
    }
}

impl Acting for ControllerHandle {
    fn acting_as(&self, actor: &Actor) -> Control {
        let handle = Self {
            shared: Arc::clone(&self.shared),
            actor: actor.clone(),
        };
        handle.control()
    }
}

impl Shared {
    /// Keeps an order and tells the loop, which acts at once.
    async fn order(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        order: Order,
    ) -> Result<StoredOrder, ControlError> {
        let stored = StoredOrder {
            order,
            by: actor.to_string(),
            since: self.clock.now(),
        };
        let order = Box::new(stored.clone());
        let writes = [Write::PutOrder(order.clone())];
        self.commit(actor, action, subject, &writes).await?;
        self.tell(Event::Ordered { order }).await?;
        Ok(stored)
    }

    /// Lifts an order and tells the loop, which acts at once.
    async fn lift(
        &self,
        actor: &Actor,
        action: &str,
        written: &str,
        subject: Subject,
    ) -> Result<(), ControlError> {
        let writes = [Write::LiftOrder(subject.clone())];
        self.commit(actor, action, written, &writes).await?;
        self.tell(Event::Lifted { subject }).await
    }

    /// Tells the admin API which tokens are good.
    async fn reload_tokens(&self) -> Result<(), ControlError> {
        let tokens = self.store.tokens().await;
        let tokens = tokens.map_err(|error| from_store(&error))?;
        self.tokens.send_replace(Arc::new(TokenRing::new(tokens)));
        Ok(())
    }
}

/// The node that a request names.
pub(super) fn node(snapshot: &Snapshot, name: &str) -> Result<NodeId, ControlError> {
    let nodes = snapshot.observed.nodes.iter();
    named_node(
        name,
        nodes.map(|(id, node)| (*id, node.facts.hostname.as_str())),
    )
}
