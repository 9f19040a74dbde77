//! The flags that `llmgw-server` and `llmgw up` share.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use llmgw_core::cluster::catalog::Model;

use crate::{
    fault::Fault,
    lifecycle::ServerConfig,
    settings::{Settings, model_flag},
    starter,
};

/// Where things are, and what should run.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Directory for everything that is kept [default: $XDG_DATA_HOME/llmgw, else ~/.local/share/llmgw]
    #[arg(long, value_name = "DIR", env = "LLMGW_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address for clients (the OpenAI API)
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LLMGW_LISTEN",
        default_value = "127.0.0.1:8080"
    )]
    pub listen: SocketAddr,
    /// Address for the admin API; on loopback
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LLMGW_ADMIN_LISTEN",
        default_value = "127.0.0.1:8082"
    )]
    pub admin_listen: SocketAddr,
    /// A model to run, may be given several times: `starter`, or
    /// `[NAME=]SOURCE[#sha256=DIGEST],memory=SIZE[,context=N][,parallel=N]`
    #[arg(long = "model", value_name = "SPEC")]
    pub models: Vec<String>,
    /// Write the API key to this file (mode 0600) instead of printing it
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Settings file (YAML): models and engines
    #[arg(long, value_name = "FILE", env = "LLMGW_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What a program adds to the shared flags.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Where agents connect; `None` when the only agent is in this process.
    pub cluster_listen: Option<SocketAddr>,
    /// Where the store is; `None` for SQLite in the data directory.
    pub store: Option<String>,
    /// How long to listen for agents that ran on before anything is placed.
    pub settle: Duration,
    /// Whether the starter model runs when no model is named.
    pub starter: bool,
}

impl ServerArgs {
    /// The data directory: the flag, or the place for it in the user's home.
    ///
    /// # Errors
    /// When there is neither.
    pub fn data_dir(&self) -> Result<PathBuf, Fault> {
        match &self.data_dir {
            Some(path) => Ok(path.clone()),
            None => default_data_dir().ok_or_else(|| Fault::Settings {
                origin: "--data-dir".to_owned(),
                problem: "neither it nor HOME is set".to_owned(),
                hint: Some("name a directory for llmgw's files: --data-dir DIR".to_owned()),
            }),
        }
    }

    /// The settings, checked: file first, then flags.
    ///
    /// # Errors
    /// When something can't be right.
    pub fn settings(&self, starter: bool) -> Result<Settings, Fault> {
        let mut settings = match &self.config {
            Some(path) => Settings::read(path)?,
            None => Settings::default(),
        };
        let flags: Result<Vec<Model>, Fault> =
            self.models.iter().map(|text| model_flag(text)).collect();
        settings.models.extend(flags?);
        if settings.models.is_empty() && starter {
            settings.models.extend(model_flag(starter::FLAG));
        }
        Ok(settings)
    }

    /// The server's configuration.
    ///
    /// # Errors
    /// When something can't be right.
    pub fn into_config(self, around: Surroundings) -> Result<ServerConfig, Fault> {
        let Surroundings {
            cluster_listen,
            store,
            settle,
            starter,
        } = around;
        let settings = self.settings(starter)?;
        Ok(ServerConfig {
            data_dir: self.data_dir()?,
            store,
            listen: self.listen,
            admin_listen: self.admin_listen,
            cluster_listen,
            api_key_file: self.api_key_file,
            engines: settings.wanted_engines(),
            models: settings.models,
            settle,
        })
    }
}

/// Where a user's data belongs by the XDG Base Directory Specification; `None` without a home directory.
#[must_use]
pub fn default_data_dir() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let value = std::env::var_os(name)?;
        Path::new(&value)
            .is_absolute()
            .then(|| PathBuf::from(value))
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    data.map(|data| data.join("llmgw"))
}
