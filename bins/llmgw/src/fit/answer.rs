//! What `llmgw fit` says.

use std::path::{Path, PathBuf};

use llmgw_core::{
    terminal::one_line,
    units::{Bytes, Tokens},
};
use llmgw_sched::fit::{
    Bound, Device, Engine, FitChange, Footprint, Kind, Request, RequestError, Shape, estimate,
    largest_context, most_layers, most_slots, remedies,
};
use serde::Serialize;

use crate::grid::grid;

/// Everything, as programs get it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    file: PathBuf,
    architecture: String,
    layers: usize,
    weights: Bytes,
    trained_context: Option<Tokens>,
    engine: Engine,
    context: Tokens,
    parallel: u32,
    devices: Vec<Part>,
    /// Absent when no memory was named to fit in.
    fits: Option<bool>,
    /// With all else as asked; absent when nothing fits, or no memory was named.
    largest_context: Option<Tokens>,
    most_parallel: Option<u32>,
    /// Of llama.cpp on GPUs.
    most_gpu_layers: Option<usize>,
    /// What would make it fit, when it does not: each was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    would_fit: Vec<FitChange>,
    /// Whether the model keeps nothing of what it reads.
    #[serde(skip)]
    reads: bool,
}

/// One device.
#[derive(Clone, Debug, Serialize)]
struct Part {
    #[serde(flatten)]
    footprint: Footprint,
    total: Bound,
    fits: Option<bool>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(path: &Path, shape: &Shape, request: &Request) -> Result<Self, RequestError> {
        let estimate = estimate(shape, request)?;
        Ok(Self {
            file: path.to_owned(),
            architecture: shape.architecture.clone(),
            layers: shape.layers.len(),
            weights: shape.weights(),
            trained_context: shape.trained_context,
            engine: request.engine,
            context: request.context,
            parallel: request.parallel,
            fits: estimate.fits(),
            largest_context: largest_context(shape, request)?,
            most_parallel: most_slots(shape, request)?,
            most_gpu_layers: most_layers(shape, request)?,
            would_fit: remedies(shape, request)?,
            reads: shape.kind == Kind::Reader,
            devices: estimate
                .devices
                .into_iter()
                .map(|footprint| Part {
                    total: footprint.total(),
                    fits: footprint.fits(),
                    footprint,
                })
                .collect(),
        })
    }

    /// Whether it certainly fits; absent when no memory was named to fit in.
    pub(super) fn fits(&self) -> Option<bool> {
        self.fits
    }
}

/// For people: parts down, devices across.
pub(super) fn table(answer: &Answer) -> String {
    let mut text = format!(
        "{}: {}, {} layers, {} of weights{}\n{}, {} tokens of context for each of {} at the same time\n\n",
        one_line(&answer.file.display().to_string()),
        one_line(&answer.architecture),
        answer.layers,
        answer.weights,
        answer
            .trained_context
            .map_or_else(String::new, |context| format!(
                ", trained for {context} tokens"
            )),
        engine(answer.engine),
        answer.context,
        requests(answer.parallel),
    );
    text.push_str(&devices(answer));
    text.push_str(&most(answer));
    text
}

fn devices(answer: &Answer) -> String {
    let mut heading = vec![String::new()];
    heading.extend(answer.devices.iter().map(|part| name(&part.footprint)));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let row = |name: &str, cell: &dyn Fn(&Part) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(answer.devices.iter().map(cell));
        row
    };
    let rows = vec![
        row("layers", &|part| part.footprint.layers.to_string()),
        row("weights", &|part| part.footprint.weights.to_string()),
        row("cache", &|part| part.footprint.cache.to_string()),
        row("state", &|part| part.footprint.state.to_string()),
        row("compute", &|part| span(part.footprint.compute)),
        row("overhead", &|part| span(part.footprint.overhead)),
        row("total", &|part| span(part.total)),
        row("may use", &|part| {
            part.footprint
                .limit
                .map_or_else(|| UNKNOWN.to_owned(), |limit| limit.to_string())
        }),
        row("fits", &fits),
    ];
    let columns: Vec<usize> = (1..heading.len()).collect();
    grid(&heading, &columns, rows.into_iter())
}

fn fits(part: &Part) -> String {
    let limit = part.footprint.limit.unwrap_or(Bytes::ZERO);
    match part.fits {
        None => UNKNOWN.to_owned(),
        Some(true) => "yes".to_owned(),
        Some(false) if part.total.least <= limit => {
            format!("perhaps, short by up to {}", part.total.most - limit)
        }
        Some(false) => format!("no, short by {} at least", part.total.least - limit),
    }
}

/// What is the most that fits, and what would help.
fn most(answer: &Answer) -> String {
    let Some(fits) = answer.fits else {
        return "\nName the memory that there is (--gpu 24GiB, --memory 64GiB) to see what fits.\n"
            .to_owned();
    };
    let mut lines = String::from("\n");
    let context = answer.largest_context.map_or_else(
        || "none fits".to_owned(),
        |context| {
            let all = Some(context) == answer.trained_context;
            let why = if all {
                ", all that it was trained for"
            } else {
                ""
            };
            format!("{context} tokens{why}")
        },
    );
    let slots = answer
        .most_parallel
        .map_or_else(|| "none fits".to_owned(), |slots| slots.to_string());
    if !answer.reads {
        lines.push_str(&format!("Largest context that fits: {context}\n"));
    }
    lines.push_str(&format!(
        "Most requests at the same time that fit: {slots}\n"
    ));
    if !fits {
        lines.push_str(&would_fit(&answer.would_fit));
    }
    lines
}

/// The flags with which it fits.
fn would_fit(changes: &[FitChange]) -> String {
    if changes.is_empty() {
        return "No smaller context or cache, fewer requests or fewer layers on GPUs would make it fit: it takes more \
                memory, or smaller weights.\n"
            .to_owned();
    }
    changes
        .iter()
        .map(|change| format!("It fits with{}\n", flags(change)))
        .collect()
}

fn flags(change: &FitChange) -> String {
    let FitChange {
        context,
        parallel,
        cache,
        gpu_layers,
    } = change;
    let mut flags = String::new();
    let mut say = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            flags.push_str(&format!(" {flag} {value}"));
        }
    };
    let cache = cache.map(|cache| cache.to_string());
    say("--context", context.map(|context| context.0.to_string()));
    say("--parallel", parallel.map(|parallel| parallel.to_string()));
    say("--cache-type-k", cache.clone());
    say("--cache-type-v", cache);
    say("--gpu-layers", gpu_layers.map(|layers| layers.to_string()));
    flags
}

fn name(footprint: &Footprint) -> String {
    match footprint.device {
        Device::Gpu(index) => format!("GPU {index}"),
        Device::Host => "HOST".to_owned(),
    }
}

fn engine(engine: Engine) -> &'static str {
    match engine {
        Engine::Llamacpp => "llama.cpp",
        Engine::Vllm => "vLLM",
        Engine::Sglang => "SGLang",
    }
}

fn requests(count: u32) -> String {
    match count {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

fn span(bound: Bound) -> String {
    let (least, most) = (bound.least.to_string(), bound.most.to_string());
    if least == most {
        most
    } else {
        format!("{least} to {most}")
    }
}

const UNKNOWN: &str = "-";
