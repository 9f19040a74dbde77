//! Engines that are modules of a Python environment.

use std::{ffi::OsString, path::Path};

use llmgw_core::cluster::catalog::KvCache;

use super::{EngineCommand, HOST, LaunchRequest, gpu::Share};

/// What the servers call the same things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The module that Python runs, and what comes before the directory of weights.
    pub(super) start: &'static [&'static str],
    /// What comes between the name that is served and that of the replica.
    pub(super) identity: &'static [&'static str],
    /// Tokens of one request.
    pub(super) context: &'static str,
    /// Requests at the same time.
    pub(super) parallel: &'static str,
    /// What is always said.
    pub(super) always: &'static [&'static str],
    /// The part of a GPU that it may use.
    pub(super) share: &'static str,
    /// Of what a replica was given, the thousandths that this part is; all of it when absent.
    pub(super) thousandths: Option<u32>,
    /// A cache of 8 bits.
    pub(super) cache_f8: &'static str,
    /// Its own variables.
    pub(super) env: &'static [(&'static str, &'static str)],
}

/// How a server that is a module of an environment is started.
pub(super) fn command(request: &LaunchRequest<'_>, words: &Words) -> EngineCommand {
    let LaunchRequest {
        engine,
        spec,
        weights,
        port,
        card,
    } = request;
    let profile = &spec.profile;
    let python = engine.launch.program();
    let mut args: Vec<OsString> = Vec::new();
    // Isolated: neither the user's own packages nor PYTHON* variables change what is run.
    args.extend(["-I", "-m"].map(OsString::from));
    args.extend(words.start.iter().map(OsString::from));
    args.push(weights.into());
    args.extend(["--host", HOST, "--port"].map(OsString::from));
    args.push(port.to_string().into());
    args.extend(["--served-model-name", spec.model.as_str()].map(OsString::from));
    args.extend(words.identity.iter().map(OsString::from));
    args.push(spec.id.to_string().into());
    // The context is of each request: pages are shared, so that nothing is multiplied by the parallel ones.
    for (word, value) in [
        (words.context, profile.context.to_string()),
        (words.parallel, profile.parallel.to_string()),
        ("--tensor-parallel-size", spec.gpus.len().max(1).to_string()),
    ] {
        args.extend([word.into(), value.into()]);
    }
    args.extend(words.always.iter().map(OsString::from));
    // Of a replica that fails its check nothing is started; what of whole GPUs is used is the server's own choice.
    if let Ok(Some(share)) = Share::of(spec, *card) {
        let share = match words.thousandths {
            Some(thousandths) => share.thousandths(thousandths),
            None => share,
        };
        args.extend([words.share.into(), share.text().into()]);
    }
    if profile.needs.kv_cache == KvCache::F8 {
        args.extend(["--kv-cache-dtype", words.cache_f8].map(OsString::from));
    }
    let mut env = vec![("PATH".into(), search_path(python))];
    // All that it reads is in the directory: nothing is asked of a hub.
    let all = words.env.iter().chain(&[("HF_HUB_OFFLINE", "1")]);
    env.extend(all.map(|(name, value)| (name.into(), value.into())));
    EngineCommand {
        program: python.to_owned(),
        args,
        env,
    }
}

/// Where an engine finds programs: those of its environment first, for it may compile kernels with them.
fn search_path(python: &Path) -> OsString {
    let mut path = OsString::new();
    if let Some(bin) = python.parent() {
        path.push(bin);
        path.push(":");
    }
    path.push(SYSTEM);
    path
}

/// The usual places, and that of CUDA's compiler.
const SYSTEM: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin";
