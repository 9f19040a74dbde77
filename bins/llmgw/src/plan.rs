//! `llmgw plan`: where models would go, and what changes would do, without a control plane.

mod changes;
mod text;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use llmgw_core::{
    api::whatif::{Change, Snapshot},
    cluster::catalog::{DefinitionError, Model},
    id::ModelName,
    reason,
};
use llmgw_sched::{
    fleet::Fleet,
    planner::{self, Options, Placement, Wanted, policy::PolicyName, sizes::Sizes},
    whatif::what_if,
};
use serde::Serialize;

pub(crate) use self::{changes::Changes, text::outcome};
use crate::{
    document::{self, DEFINITION, Kind},
    failure::{Cause, Failure},
    fit,
    output::{Format, Shown},
};

/// Where models would go on a fleet, and what changes would do; asks no control plane and changes nothing
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PlanArgs {
    /// The fleet: its nodes, what they have and what they run; YAML or JSON (of thousands of nodes: JSON), `-` for
    /// standard input
    #[arg(long, value_name = "FILE", required_unless_present = "snapshot")]
    fleet: Option<PathBuf>,
    /// What should run: `models: [...]`, each as `llmgw ctl add` takes it
    #[arg(long, value_name = "FILE", required_unless_present = "snapshot")]
    models: Option<PathBuf>,
    /// Both at once, as `llmgw ctl snapshot` writes them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fleet", "models"])]
    snapshot: Option<PathBuf>,
    /// Weights of a model, as `llmgw fit` reads them: then a profile need not name its memory, and less context and
    /// fewer requests are tried too, for what fits nowhere
    #[arg(long, value_name = "NAME=FILE", value_parser = weights)]
    weights: Vec<(ModelName, PathBuf)>,
    /// How a place is chosen among those that fit
    ///
    /// [default: that of the snapshot, else scarcity]
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    // Last, as their heading is for all that comes after it.
    #[command(flatten)]
    changes: Changes,
}

/// How a place is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Policy {
    /// Keeps free what is wanted and scarce
    Scarcity,
    /// Keeps free GPU memory usable for what is typically asked
    #[value(name = "fragmentation_gradient", alias = "fragmentation-gradient")]
    FragmentationGradient,
    /// The tightest fit
    #[value(name = "best_fit", alias = "best-fit")]
    BestFit,
    /// The node whose remains point least the way of the demand
    #[value(name = "dot_product", alias = "dot-product")]
    DotProduct,
    /// Used GPUs first
    Packing,
    /// Like to like
    Clustering,
    /// The loosest fit
    Spread,
}

/// A plan, and the reasons for it.
#[derive(Clone, Debug, Serialize)]
struct Planned {
    /// Replicas to start.
    placements: Vec<Placement>,
    /// Replicas to stop.
    stops: Vec<planner::Stop>,
    /// One for each model that lacked replicas: of the trial that failed, or of the last that succeeded.
    reports: Vec<reason::Report>,
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let answered = answer(args).and_then(|(shown, all)| shown.write().map(|()| all));
    match answered {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => failure.report(),
    }
}

/// The answer, and whether all that is wanted has a place.
fn answer(args: &PlanArgs) -> Result<(Shown, bool), Failure> {
    let Scene {
        fleet,
        written,
        written_at,
        policy,
    } = Scene::read(args)?;
    let changes = args.changes.read(&Kind {
        missing: Cause::NotFound,
        ..DEFINITION
    })?;
    let sizes = sizes(&args.weights, &written, &changes)?;
    let sized =
        |model: &Model| model.with_findings(None, |profile| sizes.memory(model.name(), profile));
    let wanted = Wanted {
        models: written.models.iter().map(sized).collect(),
    };
    let wanted = wanted.as_it_runs(&fleet);
    if let Some(wrong) = wanted.check(&fleet).first() {
        return Err(hinted(wrong_at(&written_at, wrong), wrong));
    }
    let options = Options {
        policy: args.policy.map_or(policy, Into::into),
        sizes: Arc::new(sizes),
        ..Options::default()
    };
    if args.changes.is_empty() {
        let (planner::Plan { placements, stops }, reports) =
            planner::plan_with(&fleet, &wanted, &options);
        let all = reports.iter().all(|report| report.fits.is_some());
        let planned = Planned {
            placements,
            stops,
            reports,
        };
        return Ok((args.output.show(&planned, text::planned)?, all));
    }
    let outcome = what_if(&fleet, &wanted, &changes, &options)
        .map_err(|wrong| hinted(Failure::new(Cause::Usage, wrong.to_string()), &wrong))
        .map_err(|failure| args.changes.in_words(failure))?;
    let all = outcome.unplaceable.is_empty() && outcome.lacking_already.is_empty();
    Ok((args.output.show(&outcome, text::outcome)?, all))
}

/// What is planned from.
struct Scene {
    fleet: Fleet,
    /// What is wanted, as it was written: not checked yet.
    written: Wanted,
    written_at: PathBuf,
    policy: PolicyName,
}

impl Scene {
    fn read(args: &PlanArgs) -> Result<Self, Failure> {
        let missing = || {
            Failure::new(
                Cause::Usage,
                "--fleet and --models, or --snapshot, is missing",
            )
        };
        let (fleet_at, models_at) = match &args.snapshot {
            Some(path) => (path, path),
            None => (
                args.fleet.as_ref().ok_or_else(missing)?,
                args.models.as_ref().ok_or_else(missing)?,
            ),
        };
        let scene = match &args.snapshot {
            Some(path) => Self::of(document::read(path, &SNAPSHOT)?, path)
                .map_err(|problem| wrong_at(path, &problem).with_hint(SNAPSHOT.wrong))?,
            None => Self {
                fleet: document::read(fleet_at, &FLEET)?,
                written: document::read(models_at, &MODELS)?,
                written_at: models_at.clone(),
                policy: PolicyName::default(),
            },
        };
        if let Some(wrong) = scene.fleet.check().first() {
            return Err(wrong_at(fleet_at, wrong).with_hint(FLEET.wrong));
        }
        Ok(scene)
    }

    fn of(snapshot: Snapshot, path: &Path) -> Result<Self, String> {
        let Snapshot {
            policy,
            fleet,
            models,
        } = snapshot;
        let within =
            |field: &'static str| move |wrong: serde_json::Error| format!("{field}: {wrong}");
        let models = models.into_iter().enumerate().map(|(index, model)| {
            model
                .try_into()
                .map_err(|wrong: DefinitionError| format!("models[{index}].{wrong}"))
        });
        Ok(Self {
            fleet: serde_json::from_value(fleet).map_err(within("fleet"))?,
            written: Wanted {
                models: models.collect::<Result<_, _>>()?,
            },
            written_at: path.to_owned(),
            policy: serde_json::from_value(policy.into()).map_err(within("policy"))?,
        })
    }
}

/// What the files of weights say, each of a model that is wanted now or then.
fn sizes(
    weights: &[(ModelName, PathBuf)],
    wanted: &Wanted,
    changes: &[Change],
) -> Result<Sizes, Failure> {
    let mut sizes = Sizes::default();
    for (name, path) in weights {
        let is_added = |change: &Change| match change {
            Change::Add(definition) | Change::Edit(definition) => definition.name == name.as_str(),
            _ => false,
        };
        if !wanted.by_name().contains_key(name) && !changes.iter().any(is_added) {
            let message = format!("--weights {name}: there is no model {name}");
            return Err(Failure::new(Cause::Usage, message)
                .with_hint("name a model of --models, --add or --edit"));
        }
        let shape = fit::shape(path).map_err(|failure| match failure.cause {
            // Here 1 says that something has no place.
            Cause::Refused => failure.with_cause(Cause::Usage),
            _ => failure,
        })?;
        sizes.insert(name.clone(), shape);
    }
    Ok(sizes)
}

fn wrong_at(path: &Path, problem: &dyn ToString) -> Failure {
    let problem = problem.to_string();
    Failure::new(Cause::Usage, format!("{}: {problem}", path.display()))
}

fn hinted(failure: Failure, wrong: &DefinitionError) -> Failure {
    match &wrong.hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn weights(text: &str) -> Result<(ModelName, PathBuf), String> {
    let (name, path) = text
        .split_once('=')
        .filter(|(_, path)| !path.is_empty())
        .ok_or("say whose weights they are: NAME=FILE")?;
    let name = name.parse().map_err(|wrong| format!("{wrong}"))?;
    Ok((name, path.into()))
}

impl From<Policy> for PolicyName {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Scarcity => Self::Scarcity,
            Policy::FragmentationGradient => Self::FragmentationGradient,
            Policy::BestFit => Self::BestFit,
            Policy::DotProduct => Self::DotProduct,
            Policy::Packing => Self::Packing,
            Policy::Clustering => Self::Clustering,
            Policy::Spread => Self::Spread,
        }
    }
}

/// Some 50,000 nodes.
const FLEET: Kind = Kind {
    most: 64,
    missing: Cause::NotFound,
    unreadable: "name a file with a fleet, or - for standard input; `llmgw plan --help` shows one",
    wrong: "`llmgw plan --help` shows a fleet",
};

const MODELS: Kind = Kind {
    most: 16,
    missing: Cause::NotFound,
    unreadable: "name a file with `models: [...]`, or - for standard input; `llmgw plan --help` shows one",
    wrong: "`llmgw plan --help` shows such a file",
};

/// A fleet and its models.
const SNAPSHOT: Kind = Kind {
    most: 64,
    missing: Cause::NotFound,
    unreadable: "name a file with a snapshot, or - for standard input; `llmgw ctl snapshot` writes one",
    wrong: "`llmgw ctl snapshot` writes such a file",
};

const AFTER_HELP: &str = "\
A fleet:
  nodes:
    - id: node-0197c2a4f0e17b6c9a3d5e8f10213243
      hostname: box
      memory_allocatable: 64GiB
      gpus: [{index: 0, memory: 24GiB}]
      engines: {llamacpp: {state: installed, version: \"1\", variant: path}}

What should run:
  models:
    - name: small
      source: file:/models/small.gguf
      replicas: 2
      profiles: [{memory: 2GiB, gpus: {count: 1, memory: 6GiB}}]

Exit codes:
  0  all that is wanted has a place, after the changes if there are some
  1  something has none
  2  wrong usage, or a file that can't be right
  3  there is no such file";
