//! Other gateways, from the package index: installed once, each into an environment of its own in a cache.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use crate::{call::MODEL, proxies::Place};

/// A gateway that others make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Peer {
    SglangRouter,
    VllmRouter,
    Smg,
    Litellm,
}

// === impl Peer ===

impl Peer {
    pub(crate) const ALL: [Self; 4] = [
        Self::SglangRouter,
        Self::VllmRouter,
        Self::Smg,
        Self::Litellm,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SglangRouter => "sglang-router",
            Self::VllmRouter => "vllm-router",
            Self::Smg => "smg",
            Self::Litellm => "litellm",
        }
    }

    /// What is installed: the release that the figures in the README are of.
    fn requirement(self) -> &'static str {
        match self {
            Self::SglangRouter => "sglang-router==0.3.2",
            Self::VllmRouter => "vllm-router==0.1.17",
            Self::Smg => "smg==1.13.0",
            Self::Litellm => "litellm[proxy]==1.106.12",
        }
    }

    /// How it is started; it is installed first where it isn't yet, which may take minutes.
    pub(crate) fn command(
        self,
        port: u16,
        place: &Place<'_>,
        directory: &Path,
    ) -> anyhow::Result<Command> {
        let environment = place.cache.join(self.requirement().replace("==", "-"));
        self.install(&environment, directory)?;
        let bin = environment.join("bin");
        let urls = || {
            place
                .upstreams
                .iter()
                .map(|port| format!("http://127.0.0.1:{port}"))
        };
        let metrics = crate::proxies::free_port()?.to_string();
        let port = port.to_string();
        let router = |mut command: Command, log_level: &str| {
            command.args(["--host", "127.0.0.1", "--port", &port]);
            command.arg("--worker-urls").args(urls());
            command.args(["--policy", "cache_aware", "--log-level", log_level]);
            command.args([
                "--prometheus-host",
                "127.0.0.1",
                "--prometheus-port",
                &metrics,
            ]);
            command
        };
        let mut command = match self {
            Self::SglangRouter => {
                let mut command = Command::new(bin.join("python"));
                command.args(["-m", "sglang_router.launch_router"]);
                router(command, "warn")
            }
            Self::VllmRouter => router(Command::new(bin.join("vllm-router")), "warning"),
            Self::Smg => {
                let mut command = Command::new(bin.join("smg"));
                command.arg("launch");
                router(command, "warn")
            }
            Self::Litellm => {
                let config = directory.join("litellm.yaml");
                let models: String = urls()
                    .map(|url| {
                        format!(
                            "  - model_name: {MODEL}\n    litellm_params:\n      \
                             model: openai/{MODEL}\n      api_base: {url}/v1\n      api_key: none\n"
                        )
                    })
                    .collect();
                let key = crate::call::KEY;
                let text = format!("model_list:\n{models}general_settings:\n  master_key: {key}\n");
                fs::write(&config, text)?;
                let mut command = Command::new(bin.join("litellm"));
                command.args(["--host", "127.0.0.1", "--port", &port, "--num_workers", "1"]);
                command.arg("--config").arg(config);
                command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
                command.env("LITELLM_MODE", "PRODUCTION");
                command
            }
        };
        command.current_dir(directory);
        Ok(command)
    }

    fn install(self, environment: &Path, directory: &Path) -> anyhow::Result<()> {
        let installed = environment.join("installed");
        if installed.exists() {
            return Ok(());
        }
        println!("installing {} ...", self.requirement());
        let log = directory.join("install.log");
        let run = |program: &Path, args: &[&str]| -> anyhow::Result<()> {
            let output = Command::new(program)
                .args(args)
                .output()
                .with_context(|| format!("starting {}", program.display()))?;
            fs::write(&log, [output.stdout, output.stderr].concat())?;
            if !output.status.success() {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().next_back().unwrap_or_default();
                bail!("could not be installed: {last}");
            }
            Ok(())
        };
        let path = environment.to_string_lossy();
        run(Path::new("python3"), &["-m", "venv", "--clear", &path])?;
        let python = environment.join("bin/python");
        let pip = ["-m", "pip", "install", "--quiet", self.requirement()];
        run(&python, &pip)?;
        fs::write(installed, self.requirement())?;
        Ok(())
    }
}
