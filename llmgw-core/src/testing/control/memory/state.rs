//! What a control plane in memory keeps, and how it shows it.

use super::{
    super::trial::trial, AuditEntry, ChainHead, ControlError, Kept, Model, ModelDefinition,
    ModelName, ModelView, NewAuditEntry, NodeState, NodeView, Order, Origin, Profile, ProfileView,
    ReplicaState, ReplicaView, Scaled, Scaling, State, StoredOrder, check_addition,
    check_replacement, is_declared, render,
};
use crate::clock::Timestamp;

impl State {
    pub(super) fn keep(
        &mut self,
        definition: ModelDefinition,
        origin: Origin,
    ) -> Result<ModelName, ControlError> {
        let existing = self.models.values().map(|kept| &kept.model);
        let model = check_addition(definition, existing, &self.pools)?;
        let name = model.name().clone();
        let kept = Kept {
            model,
            origin,
            failures: 0,
            last_error: None,
        };
        self.models.insert(name.clone(), kept);
        Ok(name)
    }

    /// The model that takes the place of one, and whether it runs otherwise.
    pub(super) fn replacement(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<(Model, bool), ControlError> {
        let unknown = || ControlError::unknown_model(name);
        let kept = self.models.get(name).ok_or_else(unknown)?;
        if kept.origin == Origin::Declared {
            return Err(is_declared(name));
        }
        let existing = self.models.values().map(|kept| &kept.model);
        let model = check_replacement(name, definition, existing, &self.pools)?;
        let (old, new) = (&kept.model, &model);
        let is_other = (old.weights(), old.profiles()) != (new.weights(), new.profiles());
        Ok((model, is_other))
    }

    pub(in crate::testing::control) fn note(&mut self, actor: &str, action: &str, subject: &str) {
        let entry = NewAuditEntry {
            at: Timestamp(0),
            actor: actor.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
        };
        let head = self.audit.last().map_or(ChainHead::EMPTY, AuditEntry::head);
        let chained = AuditEntry::chained(head, &entry);
        self.audit.push(chained);
    }

    pub(in crate::testing::control) fn resolve(
        &self,
        name: &ModelName,
    ) -> Result<&Kept, ControlError> {
        self.models
            .values()
            .find(|kept| kept.model.answers_to(name.as_str()))
            .ok_or_else(|| ControlError::unknown_model(name))
    }

    /// What is in force.
    pub(in crate::testing::control) fn scaling(&self, kept: &Kept) -> Scaling {
        let ordered = self.orders.scaling(kept.model.name());
        ordered.unwrap_or_else(|| kept.model.scaling())
    }

    /// The nodes, used as was ordered.
    pub(in crate::testing::control) fn ordered_nodes(&self) -> Vec<NodeView> {
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            node.pools = self.pools.of(&node.labels);
            if let Some(order) = self.orders.node(node.id) {
                if node.state != NodeState::Lost {
                    node.state = order.duty.into();
                }
                node.state_reason = Some(order.reason.clone()).filter(|why| !why.is_empty());
            }
        }
        nodes
    }

    pub(in crate::testing::control) fn put(&mut self, actor: &str, order: Order) {
        self.orders.put(StoredOrder {
            order,
            by: actor.to_owned(),
            since: Timestamp(0),
        });
    }

    pub(in crate::testing::control) fn of<'a>(
        &'a self,
        model: &'a ModelName,
    ) -> impl Iterator<Item = &'a ReplicaView> {
        self.replicas
            .iter()
            .filter(move |replica| replica.model == *model)
    }

    pub(super) fn view(&self, kept: &Kept) -> ModelView {
        let Kept {
            model,
            origin,
            failures,
            last_error,
        } = kept;
        let name = model.name();
        let ready = |replica: &&ReplicaView| replica.state == ReplicaState::Ready;
        let scaling = self.scaling(kept);
        let scaled = Scaled::from((name.clone(), scaling));
        let mut view = ModelView {
            name: name.clone(),
            description: model.description().to_owned(),
            aliases: model.aliases().to_vec(),
            fallbacks: model.fallbacks().to_vec(),
            source: model
                .weights()
                .sources
                .iter()
                .map(|source| source.without_secrets().to_string())
                .collect(),
            origin: *origin,
            min_replicas: scaling.min(),
            max_replicas: scaling.max(),
            idle_timeout: scaled.idle_timeout,
            idle_timeout_text: scaled.idle_timeout_text,
            on_demand: scaled.on_demand,
            desired: scaling.min(),
            ready_replicas: self.of(name).filter(ready).count(),
            total_replicas: self.of(name).count(),
            profiles: model.profiles().iter().map(profile_view).collect(),
            parked: *failures >= PARKED_AFTER,
            failures: *failures,
            last_error: last_error.clone(),
            unplaceable: None,
            unplaceable_check: None,
        };
        let report = trial(&self.ordered_nodes(), model);
        if view.total_replicas < want(&view) && report.fits.is_none() {
            view.unplaceable = Some(render::headline(&report));
            view.unplaceable_check = report.summary.first().map(|count| count.check);
        }
        view
    }
}

fn profile_view(profile: &Profile) -> ProfileView {
    ProfileView {
        name: profile.name.clone(),
        engine: profile.engine.to_string(),
        memory: profile.is_sized().then_some(profile.memory),
        memory_estimated: !profile.is_sized(),
        context: profile.context,
        parallel: profile.parallel,
    }
}

pub(super) fn satisfied(view: &ModelView) -> bool {
    view.ready_replicas >= want(view)
}

fn want(view: &ModelView) -> usize {
    usize::try_from(view.desired).unwrap_or(usize::MAX)
}

/// Section 6 of the specification: five failures in a row.
pub(super) const PARKED_AFTER: u32 = 5;
