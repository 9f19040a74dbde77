//! `llmgw-agent check`: installs an engine once in a directory of its own, and says what came of it.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use llmgw_agent::{
    engine::InstalledEngine,
    facts::{Root, Scene, look, probes},
    process::inherited,
    provision::{ProvisionConfig, ProvisionDeps, ProvisionError, ProvisionTimes, Provisioner},
};
use llmgw_bundle::archive::recognise;
use llmgw_core::{
    clock::{Clock as _, SystemClock},
    cluster::{
        engine::{EngineSource, Provision, ProvisionState, WantedEngine},
        node::{NodeFacts, Warning},
    },
    error::{Chain, Coded as _},
    fetch::FetchTimes,
    id::EngineName,
    releases::ReleaseClient,
    terminal::{in_lines, one_line},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    flags::{CheckArgs, Output, SourceName},
    interrupted,
};

/// What came of it.
#[derive(Debug, Serialize)]
struct Verdict {
    engine: EngineName,
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The choice, what was passed over, and what the operator should know.
    provision: Provision,
    /// Each step, in the order in which they were taken.
    steps: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    machine_warnings: Vec<Warning>,
}

/// Tries it, and prints what came of it.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    for archive in &args.from {
        is_archive(archive)?;
    }
    let wanted = wanted(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::plain(format!("the async runtime can't start: {error}")))?;
    let directory = Scratch::make(args)?;
    let facts = look(&probes(&Root::system()), &Scene::here(&directory.0));
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = run(args, &wanted, &directory) => ended,
            _ = interrupted() => Err(Failure::plain("it was interrupted".to_owned())),
        }
    });
    drop(directory);
    let verdict = Verdict {
        machine_warnings: facts.warnings.clone(),
        ..ended?
    };
    let text = match args.output {
        Output::Text => text(&verdict, &facts),
        Output::Json => serde_json::to_string_pretty(&verdict)
            .map_err(|error| Failure::plain(format!("writing JSON: {error}")))?,
    };
    // Who reads no further has seen enough.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
    Ok(if verdict.works {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn run(
    args: &CheckArgs,
    wanted: &WantedEngine,
    directory: &Scratch,
) -> Result<Verdict, Failure> {
    let releases = match args.releases.as_str() {
        "none" => None,
        list => Some(
            ReleaseClient::new(list, FetchTimes::default())
                .map_err(|error| Failure::input(&error))?,
        ),
    };
    let provisioner = Provisioner::build(
        ProvisionConfig {
            directory: directory.0.join("engines"),
            marker_env: Vec::new(),
            environment: inherited(std::env::vars_os()),
            python: args.python.clone(),
            path_override: BTreeMap::new(),
            clock: Arc::new(SystemClock::new()),
        },
        ProvisionTimes::default(),
        ProvisionDeps {
            releases,
            ..ProvisionDeps::default()
        },
    );
    let told = Mutex::new((
        Provision::new(wanted.name.clone(), ProvisionState::Pending),
        Vec::<String>::new(),
    ));
    let shown = args.output.is_text();
    let hears = |next: Provision| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if let ProvisionState::Installing { step, .. } = &next.state
            && told.1.last() != Some(step)
        {
            if shown {
                drop(writeln!(std::io::stderr().lock(), "{}", one_line(step)));
            }
            told.1.push(step.clone());
        }
        told.0 = next;
    };
    let ended = if args.from.is_empty() {
        provisioner.converge(wanted, &hears).await
    } else {
        provisioner
            .converge_from(&wanted.name, &args.from, &hears)
            .await
    };
    let (provision, steps) = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Verdict::of(ended, provision, steps))
}

impl Verdict {
    fn of(
        ended: Result<InstalledEngine, ProvisionError>,
        mut provision: Provision,
        steps: Vec<String>,
    ) -> Self {
        let engine = provision.engine.clone();
        let mut verdict = Self {
            engine,
            works: ended.is_ok(),
            version: None,
            variant: None,
            error: None,
            hint: None,
            provision: provision.clone(),
            steps,
            machine_warnings: Vec::new(),
        };
        match ended {
            Ok(InstalledEngine {
                version, variant, ..
            }) => {
                verdict.version = Some(version);
                verdict.variant = Some(variant);
            }
            Err(error) => {
                if let ProvisionError::NoBuild(none) = &error {
                    provision.passed_over.clone_from(&none.passed_over);
                    provision.warnings.clone_from(&none.warnings);
                }
                let (error, hint) = (Chain(&error).to_string(), error.hint());
                provision.state = ProvisionState::Failed {
                    error: error.clone(),
                    hint: hint.clone(),
                    // Who checks decides that.
                    retry_at: SystemClock::new().now(),
                };
                verdict.provision = provision;
                verdict.error = Some(error);
                verdict.hint = hint;
            }
        }
        verdict
    }
}

/// Looks whether it can be meant, so that nobody waits for an answer about something else.
fn is_archive(archive: &Path) -> Result<(), Failure> {
    let wrong = |problem: &str, hint: &str| {
        Failure::wrong(format!("--from {}: {problem}", archive.display()), hint)
    };
    match std::fs::metadata(archive) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(wrong(
            "there is no such file",
            "name an archive of an engine",
        )),
        Err(error) => Err(wrong(
            &error.to_string(),
            "name an archive that you may read",
        )),
        Ok(found) if found.is_dir() => Err(wrong(
            "it is a directory, and an archive is checked from its first byte",
            "pack it, or name the program in it: llmgw-agent run --llamacpp-path PROGRAM",
        )),
        Ok(found) if !found.is_file() => {
            Err(wrong("it is no file", "name an archive of an engine"))
        }
        Ok(_) => recognise(archive)
            .map(drop)
            .map_err(|error| Failure::input(&error)),
    }
}

fn wanted(args: &CheckArgs) -> Result<WantedEngine, Failure> {
    let (name, version) = match args.engine.split_once('=') {
        Some((name, version)) => (name, Some(version)),
        None => (args.engine.as_str(), None),
    };
    let hint = "write ENGINE or ENGINE=VERSION, such as llamacpp=b10991";
    let wrong =
        |problem: String| Failure::wrong(format!("--engine {}: {problem}", args.engine), hint);
    let name: EngineName = name
        .parse()
        .map_err(|error| wrong(Chain(&error).to_string()))?;
    if llmgw_agent::engine::engine(&name).is_none() {
        return Err(wrong(
            "it is not an engine that this release runs".to_owned(),
        ));
    }
    if version.is_some_and(str::is_empty) {
        return Err(wrong("the version is empty".to_owned()));
    }
    let source = match args.source {
        SourceName::Auto => EngineSource::Auto,
        SourceName::Github => EngineSource::Github,
        SourceName::Wheel => EngineSource::Wheel,
    };
    Ok(WantedEngine {
        version: version.map(str::to_owned),
        variant: args.variant.clone(),
        ..WantedEngine::new(name, source)
    })
}

fn text(verdict: &Verdict, facts: &NodeFacts) -> String {
    let Verdict {
        engine,
        works,
        version,
        variant,
        error,
        hint,
        provision,
        steps: _,
        machine_warnings,
    } = verdict;
    let unknown = || "unknown".to_owned();
    let gpus = facts
        .gpus
        .as_ref()
        .map_or_else(unknown, |gpus| match gpus.len() {
            0 => "no GPU".to_owned(),
            1 => "1 GPU".to_owned(),
            many => format!("{many} GPUs"),
        });
    let glibc = facts.glibc.clone().unwrap_or_else(unknown);
    let mut lines = vec![format!("machine   {}, glibc {glibc}, {gpus}", facts.arch)];
    lines.extend(
        provision
            .choice
            .iter()
            .map(|choice| format!("choice    {choice}")),
    );
    lines.extend(
        provision
            .passed_over
            .iter()
            .map(|one| format!("passed    {}: {}", one.build, one.reason)),
    );
    lines.extend(
        provision
            .warnings
            .iter()
            .chain(machine_warnings)
            .map(|warning| format!("warning   {}", warning.text)),
    );
    let said = |text: &Option<String>| text.clone().unwrap_or_else(unknown);
    lines.push(if *works {
        format!(
            "result    {engine} works here: {} ({})",
            said(version),
            said(variant)
        )
    } else {
        format!("result    {engine} would not work here: {}", said(error))
    });
    lines.extend(hint.iter().map(|hint| format!("hint      {hint}")));
    in_lines(&lines)
}

/// A directory that is gone afterwards, whatever happens but a `kill -9`.
struct Scratch(PathBuf);

impl Scratch {
    fn make(args: &CheckArgs) -> Result<Self, Failure> {
        let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
        let path = parent.join(format!("llmgw-check-{}", std::process::id()));
        std::fs::create_dir_all(&parent)
            .and_then(|()| std::fs::create_dir(&path))
            .map_err(|error| {
                Failure::wrong(
                    format!("making the directory {}: {error}", path.display()),
                    "name one that you may write to: --directory DIR",
                )
            })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    #[expect(
        clippy::print_stderr,
        reason = "what is left behind on somebody's disk has to be said"
    )]
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("warning: {} is left: {error}", self.0.display());
        }
    }
}
