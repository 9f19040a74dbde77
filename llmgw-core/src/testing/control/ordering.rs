//! The promises of what is ordered: scales, rolls, nodes, engines, holds, measurements, tokens.

use std::time::Duration;

use super::{
    Fixture, Violation,
    promises::{definition, listed, name},
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::{
        orders::{
            EngineRequest, HoldRequest, NodeStateRequest, NodeUse, RollRequest, ScaleRequest,
        },
        tenancy::KeyRequest,
    },
    cluster::{
        account::Role, audit::AuditEntry, capacity::Measurement, node::NodeState, order::HoldScope,
    },
    control::{Actor, Control},
    error::Code,
    id::{EngineName, HoldName, IdError, NodeId, ProfileName, TokenId},
    units::{Bytes, Span},
};

pub(super) async fn a_scale_is_in_force_until_the_model_goes(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let catalog = &fixture.control.catalog;
    let wanted = definition(
        "conformance/scaled",
        &["conformance/s"],
        Bytes::gib(1 << 20),
    );
    let model = done("an addition", catalog.add(wanted.clone()).await)?;
    let alias = name("conformance/s")?;
    let steps = [
        (Some(2), None, Some(60), (2, 2, 60)),
        (Some(0), Some(3), None, (0, 3, 60)),
        (None, None, Some(90), (0, 3, 90)),
        (Some(0), None, None, (0, 1, 90)),
    ];
    for (min, max, idle, (min_in_force, max_in_force, idle_in_force)) in steps {
        let scale = ScaleRequest {
            min,
            max,
            idle_timeout: idle.map(|seconds| Span(Duration::from_secs(seconds))),
        };
        let answer = done("a scale", catalog.scale(&alias, scale).await)?;
        let idle = Span(Duration::from_secs(idle_in_force));
        equal(
            "a scale answers with what is in force",
            &(
                &model,
                min_in_force,
                max_in_force,
                idle.nanoseconds(),
                idle.to_string(),
            ),
            &(
                &answer.model,
                answer.min,
                answer.max,
                answer.idle_timeout,
                answer.idle_timeout_text,
            ),
        )?;
        equal("on demand", &(min_in_force == 0), &answer.on_demand)?;
        let view = listed(&fixture.control, &model).await?;
        equal(
            "the model is shown as it is scaled",
            &(min_in_force, max_in_force, idle.nanoseconds()),
            &(view.min_replicas, view.max_replicas, view.idle_timeout),
        )?;
    }
    done("a removal", catalog.remove(&model).await)?;
    done("an addition", catalog.add(wanted).await)?;
    let view = listed(&fixture.control, &model).await?;
    equal(
        "a model that is added anew is scaled as it is defined",
        &(1, 1),
        &(view.min_replicas, view.max_replicas),
    )?;
    done("a removal", catalog.remove(&model).await)
}

pub(super) async fn scales_that_cannot_be_are_refused(fixture: &Fixture) -> Result<(), Violation> {
    let catalog = &fixture.control.catalog;
    let one = ScaleRequest {
        min: Some(1),
        ..ScaleRequest::default()
    };
    refused(
        "a declared model can't be scaled",
        Code::Conflict,
        catalog.scale(&fixture.declared, one).await,
    )?;
    refused(
        "an unknown model is not found",
        Code::NotFound,
        catalog.scale(&name("conformance/unknown")?, one).await,
    )?;
    let wanted = definition("conformance/scaled", &[], Bytes::gib(1 << 20));
    let model = done("an addition", catalog.add(wanted).await)?;
    let nothing = ScaleRequest::default();
    let upside_down = ScaleRequest {
        min: Some(3),
        max: Some(2),
        ..nothing
    };
    let too_many = ScaleRequest {
        max: Some(1_001),
        ..nothing
    };
    let too_short = ScaleRequest {
        idle_timeout: Some(Span(Duration::ZERO)),
        ..nothing
    };
    for (field, wrong) in [
        ("min: ", nothing),
        ("max: ", upside_down),
        ("max: ", too_many),
        ("idle_timeout: ", too_short),
    ] {
        let error = refused(
            "a scale that can't be is refused",
            Code::InvalidRequest,
            catalog.scale(&model, wrong).await,
        )?;
        holds(
            "the refusal names the field",
            error.message.starts_with(field),
            &error,
        )?;
    }
    done("a removal", catalog.remove(&model).await)
}

pub(super) async fn only_what_is_stale_is_rolled(fixture: &Fixture) -> Result<(), Violation> {
    let catalog = &fixture.control.catalog;
    refused(
        "an unknown model is not found",
        Code::NotFound,
        catalog
            .roll(&name("conformance/unknown")?, RollRequest::default())
            .await,
    )?;
    let wanted = definition("conformance/fresh", &[], Bytes::gib(1 << 20));
    let model = done("an addition", catalog.add(wanted).await)?;
    for force in [false, true] {
        refused(
            "a model none of whose replicas is stale is not rolled",
            Code::Conflict,
            catalog.roll(&model, RollRequest { force }).await,
        )?;
    }
    done("a removal", catalog.remove(&model).await)
}

pub(super) async fn a_node_is_used_as_ordered(control: &Control) -> Result<(), Violation> {
    let fleet = &control.fleet;
    for unknown in ["nobody", &NodeId::generate().to_string()] {
        refused(
            "an unknown node is not found",
            Code::NotFound,
            fleet.use_node(unknown, NodeUse::Cordoned.into()).await,
        )?;
        refused(
            "an unknown node is not let in",
            Code::NotFound,
            fleet.approve(unknown).await,
        )?;
    }
    let nodes = done("nodes", fleet.nodes().await)?;
    let Some(node) = nodes.iter().find(|node| node.state == NodeState::Ready) else {
        return Ok(());
    };
    for (to, force) in [(NodeUse::Cordoned, true), (NodeUse::Ready, true)] {
        let wanted = NodeStateRequest { force, ..to.into() };
        let error = refused(
            "only a drain is forced",
            Code::InvalidRequest,
            fleet.use_node(&node.hostname, wanted).await,
        )?;
        holds(
            "the refusal names the field",
            error.message.starts_with("force: "),
            &error,
        )?;
    }
    for (to, force, state) in [
        (NodeUse::Cordoned, false, NodeState::Cordoned),
        (NodeUse::Draining, false, NodeState::Draining),
        (NodeUse::Draining, true, NodeState::Draining),
        (NodeUse::Ready, false, NodeState::Ready),
    ] {
        let seen = last(control).await?;
        let wanted = NodeStateRequest {
            state: to,
            reason: "new disk".to_owned(),
            force,
        };
        let answer = fleet.use_node(&node.id.to_string(), wanted).await;
        let answer = done("a node's use", answer)?;
        equal(
            "the answer is what is in force",
            &(node.id, state),
            &(answer.id, answer.state),
        )?;
        let nodes = done("nodes", fleet.nodes().await)?;
        let found = nodes.iter().find(|one| one.id == node.id);
        equal(
            "the node is shown so at once",
            &Some(state),
            &found.map(|one| one.state),
        )?;
        let reason = (to != NodeUse::Ready).then(|| "new disk".to_owned());
        let shown = found.and_then(|one| one.state_reason.clone());
        equal("with the reason", &reason, &shown)?;
        let entries = done("the audit log", control.audit.audit(seen, 1_000).await)?;
        let told = entries.iter().any(|entry| {
            entry.action == "node.state" && entry.subject.ends_with(" force") == force
        });
        holds("it is written down whether it is forced", told, &entries)?;
    }
    Ok(())
}

pub(super) async fn an_engine_is_wanted_as_it_was_chosen(
    control: &Control,
) -> Result<(), Violation> {
    let engine: EngineName = parsed("llamacpp")?;
    let chosen = control
        .engines
        .choose(request("llamacpp", Some("b11000"), Some("cpu"))?)
        .await;
    let chosen = done("a choice", chosen)?;
    equal(
        "a choice answers with what is wanted",
        &("b11000", Some("cpu")),
        &(chosen.version(), chosen.variant.as_deref()),
    )?;
    let listed = done("engines", control.engines.engines().await)?;
    holds(
        "engines come by name, each once",
        listed.is_sorted_by(|a, b| a.name < b.name),
        &listed,
    )?;
    let found = listed.iter().find(|one| one.name == engine);
    holds(
        "the engine is wanted so, and it is said who chose it",
        found.is_some_and(|one| {
            one.chosen.as_ref().is_some_and(|by| !by.by.is_empty())
                && one.wanted.as_ref().map(|wanted| wanted.version()) == Some("b11000")
        }),
        &found,
    )?;
    let lifted = done(
        "a choice taken back",
        control.engines.unchoose(&engine).await,
    )?;
    equal("the engine", &engine, &lifted.lifted)?;
    let listed = done("engines", control.engines.engines().await)?;
    let found = listed.iter().find(|one| one.name == engine);
    holds(
        "what the settings say is in force again",
        found.is_none_or(|one| {
            one.chosen.is_none() && one.wanted.as_ref().map(|one| one.version()) != Some("b11000")
        }),
        &found,
    )?;
    refused(
        "a choice can't be taken back twice",
        Code::NotFound,
        control.engines.unchoose(&engine).await,
    )?;
    Ok(())
}

pub(super) async fn engines_that_no_node_could_have_are_refused(
    control: &Control,
) -> Result<(), Violation> {
    for wrong in [
        request("conformance", Some("1"), None)?,
        request("llamacpp", Some("no version"), None)?,
        request("llamacpp", None, Some("../cpu"))?,
        request("llamacpp", None, None)?,
    ] {
        refused(
            "an engine that no node could have is refused",
            Code::InvalidRequest,
            control.engines.choose(wrong).await,
        )?;
    }
    Ok(())
}

pub(super) async fn a_hold_stands_until_it_is_lifted(control: &Control) -> Result<(), Violation> {
    let hold: HoldName = parsed("conformance")?;
    let place = |facility: &str, lasts: Option<u64>| HoldRequest {
        name: hold.clone(),
        scope: HoldScope::Facility(facility.to_owned()),
        reason: "new floor".to_owned(),
        lasts: lasts.map(|seconds| Span(Duration::from_secs(seconds))),
    };
    let first = done("a hold", control.holds.hold(place("nowhere", None)).await)?;
    equal("it ends by no time", &None, &first.until)?;
    let second = control.holds.hold(place("elsewhere", Some(3_600))).await;
    let second = done("a hold of the same name", second)?;
    holds(
        "a hold that lasts an hour says when it ends",
        second.until.is_some_and(|until| until.0 >= 3_600_000),
        &second,
    )?;
    let listed = done("holds", control.holds.holds().await)?;
    holds(
        "holds come by name, and a later one takes the place of the one of its name",
        listed.is_sorted_by(|a, b| a.name < b.name) && listed.contains(&second),
        &listed,
    )?;
    let nobody = HoldRequest {
        scope: HoldScope::Node(NodeId::generate()),
        ..place("", None)
    };
    let turned = HoldRequest {
        reason: "new\u{202e}roolf".to_owned(),
        ..place("here", None)
    };
    for wrong in [nobody, place(" ", None), place("here", Some(0)), turned] {
        refused(
            "a hold that can't be is refused",
            Code::InvalidRequest,
            control.holds.hold(wrong).await,
        )?;
    }
    done("a hold lifted", control.holds.lift(&hold).await)?;
    refused(
        "a hold can't be lifted twice",
        Code::NotFound,
        control.holds.lift(&hold).await,
    )?;
    let listed = done("holds", control.holds.holds().await)?;
    holds(
        "a lifted hold is not listed",
        listed.iter().all(|one| one.name != hold),
        &listed,
    )
}

pub(super) async fn a_measurement_is_kept_and_replaced(fixture: &Fixture) -> Result<(), Violation> {
    let capacities = &fixture.control.capacities;
    let view = listed(&fixture.control, &fixture.declared).await?;
    let Some(profile) = view.profiles.first() else {
        return Ok(());
    };
    let measured = |profile: ProfileName, concurrency| Measurement {
        profile,
        concurrency,
        tokens_per_second: 700,
        time_to_first_token_ms: Some(120),
        inter_token_ms: None,
        prompt_tokens: None,
        completion_tokens: None,
        goal: String::new(),
    };
    for concurrency in [2, 4] {
        let measured = measured(profile.name.clone(), concurrency);
        let kept = capacities.record(&fixture.alias, measured.clone()).await;
        let kept = done("a measurement", kept)?;
        equal(
            "it is kept under the model's own name",
            &fixture.declared,
            &kept.model,
        )?;
        equal("as it was made", &measured, &kept.measurement)?;
        let listed = done("capacity", capacities.capacities().await)?;
        let of_both: Vec<_> = listed
            .iter()
            .filter(|one| one.model == kept.model && one.measurement.profile == profile.name)
            .collect();
        equal("a later one takes its place", &vec![&kept], &of_both)?;
    }
    let unknown = name("conformance/unknown")?;
    refused(
        "an unknown model is not found",
        Code::NotFound,
        capacities
            .record(&unknown, measured(profile.name.clone(), 1))
            .await,
    )?;
    for wrong in [
        measured(parsed("conformance")?, 1),
        measured(profile.name.clone(), 0),
    ] {
        refused(
            "a measurement that can't be is refused",
            Code::InvalidRequest,
            capacities.record(&fixture.declared, wrong).await,
        )?;
    }
    Ok(())
}

pub(super) async fn a_token_is_listed_from_its_making_to_its_revocation(
    control: &Control,
) -> Result<(), Violation> {
    let operators = &control.operators;
    let before = done("tokens", operators.tokens().await)?;
    let made = operators.create_token(" conformance ", Role::Viewer).await;
    let made = done("a token is made", made)?;
    equal(
        "with its name and role",
        &("conformance", Role::Viewer),
        &(made.token.name.as_str(), made.token.role),
    )?;
    holds("and a secret", !made.secret.is_empty(), &made.token)?;
    let listed = done("tokens", operators.tokens().await)?;
    holds(
        "tokens come by id, each once",
        listed.is_sorted_by(|a, b| a.id < b.id) && listed.contains(&made.token),
        &listed,
    )?;
    for name in ["", "a\nb"] {
        refused(
            "a token's name can be read",
            Code::InvalidRequest,
            operators.create_token(name, Role::Admin).await,
        )?;
    }
    done("a revocation", operators.revoke_token(made.token.id).await)?;
    for gone in [made.token.id, TokenId::generate()] {
        refused(
            "an unknown token is not found",
            Code::NotFound,
            operators.revoke_token(gone).await,
        )?;
    }
    equal(
        "revoked tokens are not listed",
        &before,
        &done("tokens", operators.tokens().await)?,
    )
}

pub(super) async fn logs_are_of_a_model_that_is_there(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    refused(
        "an unknown model is not found",
        Code::NotFound,
        control.fleet.logs(&name("conformance/unknown")?).await,
    )?;
    let logs = done("logs", control.fleet.logs(alias).await)?;
    holds(
        "logs have the model's own name",
        logs.iter().all(|log| log.model == *declared),
        &logs,
    )
}

pub(super) async fn orders_are_written_down_under_their_actor(
    control: &Control,
) -> Result<(), Violation> {
    let actor = Actor::named("alice (conformance)").map_err(|error| Violation {
        promise: "the suite's own actor is one",
        found: error.to_string(),
    })?;
    let alices = control.acting.acting_as(&actor);
    let seen = last(control).await?;
    let key = done(
        "a key is made",
        alices
            .tenancy
            .create_key(KeyRequest::named("conformance"))
            .await,
    )?;
    done("a revocation", control.tenancy.revoke_key(key.key.id).await)?;
    let entries = done("the audit log", control.audit.audit(seen, 1_000).await)?;
    let [made, revoked] = entries.as_slice() else {
        return Err(Violation {
            promise: "each order has one entry",
            found: format!("{entries:?}"),
        });
    };
    holds(
        "an order is written down under its actor",
        made.actor.contains("alice (conformance)") && !revoked.actor.contains("alice"),
        &entries,
    )
}

/// What two handles on one control plane must answer alike.
pub(super) async fn same_answers(left: &Control, right: &Control) -> Result<(), Violation> {
    equal(
        "engines",
        &left.engines.engines().await,
        &right.engines.engines().await,
    )?;
    equal(
        "holds",
        &left.holds.holds().await,
        &right.holds.holds().await,
    )?;
    equal(
        "capacity",
        &left.capacities.capacities().await,
        &right.capacities.capacities().await,
    )?;
    equal(
        "tokens",
        &left.operators.tokens().await,
        &right.operators.tokens().await,
    )?;
    let nothing = ScaleRequest::default();
    for view in left.catalog.models().await.unwrap_or_default() {
        let name = &view.name;
        equal(
            "logs",
            &left.fleet.logs(name).await,
            &right.fleet.logs(name).await,
        )?;
        equal(
            "refusal of a scale",
            &left.catalog.scale(name, nothing).await,
            &right.catalog.scale(name, nothing).await,
        )?;
    }
    let nobody = "nobody/at all?";
    equal(
        "refusal of an unknown node",
        &left.fleet.use_node(nobody, NodeUse::Ready.into()).await,
        &right.fleet.use_node(nobody, NodeUse::Ready.into()).await,
    )?;
    let hold: HoldName = parsed("conformance-none")?;
    equal(
        "refusal of an unknown hold",
        &left.holds.lift(&hold).await,
        &right.holds.lift(&hold).await,
    )
}

/// The number of the last entry.
async fn last(control: &Control) -> Result<u64, Violation> {
    let mut seen = 0;
    loop {
        let page: Vec<AuditEntry> = done("the audit log", control.audit.audit(seen, 1_000).await)?;
        match page.last() {
            Some(last) => seen = last.seq,
            None => return Ok(seen),
        }
    }
}

fn request(
    name: &str,
    version: Option<&str>,
    variant: Option<&str>,
) -> Result<EngineRequest, Violation> {
    Ok(EngineRequest {
        name: parsed(name)?,
        version: version.map(ToOwned::to_owned),
        source: None,
        variant: variant.map(ToOwned::to_owned),
    })
}

fn parsed<T: std::str::FromStr<Err = IdError>>(text: &str) -> Result<T, Violation> {
    text.parse().map_err(|error: IdError| Violation {
        promise: "the suite's own names are names",
        found: error.to_string(),
    })
}
