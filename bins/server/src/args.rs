//! The flags that `llmgw-server` and `llmgw up` share.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use llmgw_core::releases::LLAMACPP_RELEASES;

use crate::{
    fault::Fault,
    lifecycle::ServerConfig,
    settings::{Settings, Sources},
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
        default_value = "127.0.0.1:8080",
        value_parser = address
    )]
    pub listen: SocketAddr,
    /// Address for the admin API; on loopback
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LLMGW_ADMIN_LISTEN",
        default_value = "127.0.0.1:8082",
        value_parser = address
    )]
    pub admin_listen: SocketAddr,
    /// A model to run, may be given several times: `starter`, or
    /// `[NAME=]SOURCE[#sha256=DIGEST][,memory=SIZE][,context=N][,parallel=N]`
    #[arg(long = "model", value_name = "SPEC")]
    pub models: Vec<String>,
    /// Write the API key to this file (mode 0600) instead of printing it
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// The list of engine releases; `none` when there is no way to it from here
    #[arg(
        long,
        value_name = "URL",
        env = "LLMGW_RELEASES",
        default_value = LLAMACPP_RELEASES
    )]
    pub releases: String,
    /// Settings file (YAML): models, engines, placement, weights
    #[arg(long, value_name = "FILE", env = "LLMGW_CONFIG")]
    pub config: Option<PathBuf>,
    /// Leave the settings in the store aside, when they can't be right any more: what the file says holds alone
    #[arg(long)]
    pub without_stored_settings: bool,
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

    /// Where settings are said: a file, then flags.
    #[must_use]
    pub fn sources(&self, starter: bool) -> Sources {
        Sources {
            file: self.config.clone(),
            flags: self.models.clone(),
            starter,
        }
    }

    /// What they say, checked.
    ///
    /// # Errors
    /// When something can't be right.
    pub fn settings(&self, starter: bool) -> Result<Settings, Fault> {
        self.sources(starter).read("")
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
        // What can't be right is told before anything is made.
        self.settings(starter)?;
        Ok(ServerConfig {
            settings: self.sources(starter),
            without_document: self.without_stored_settings,
            data_dir: self.data_dir()?,
            store,
            listen: self.listen,
            admin_listen: self.admin_listen,
            cluster_listen,
            api_key_file: self.api_key_file,
            releases: (self.releases != NO_RELEASES).then_some(self.releases),
            settle,
        })
    }
}

/// What stands for no list of releases.
const NO_RELEASES: &str = "none";

/// Reads an address with a port; an error shows one.
///
/// # Errors
/// When it is none.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:8080 for this machine alone or 0.0.0.0:8080 for all"
            .to_owned()
    })
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn args(rest: &[&str]) -> Result<ServerArgs, clap::Error> {
        let all = ["llmgw", "--data-dir", "/d"].iter().chain(rest);
        Cli::try_parse_from(all).map(|cli| cli.server)
    }

    #[test]
    fn what_is_no_address_is_refused_with_one_that_is() {
        for text in ["nonsense", "localhost:80", "127.0.0.1", "8080"] {
            for flag in ["--listen", "--admin-listen"] {
                let error = args(&[flag, text]).unwrap_err().to_string();
                assert!(
                    error.contains(text) && error.contains("127.0.0.1:8080"),
                    "{error}"
                );
            }
        }
        let given = args(&["--listen", "[::1]:0"]).unwrap();
        assert_eq!(given.listen.port(), 0);
    }

    #[test]
    fn a_name_of_two_models_is_refused_with_where_they_stand() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("llmgw.yaml");
        let model = |name: &str, more: &str| {
            format!(
                "  - name: {name}\n    source: file:/m.gguf\n    profiles: [{{memory: 1GiB}}]\n{more}"
            )
        };
        let refused = |text: &str, flags: &[&str]| {
            std::fs::write(&file, text).unwrap();
            let shown = file.display().to_string();
            let all: Vec<&str> = ["--config", &shown].iter().chain(flags).copied().collect();
            let fault = args(&all).unwrap().settings(true).unwrap_err();
            assert!(fault.is_usage() && fault.hint().is_some(), "{fault}");
            fault.to_string().replace(&shown, "FILE")
        };
        assert_eq!(
            refused(
                &format!("models:\n{}{}", model("a", ""), model("a", "")),
                &[]
            ),
            "FILE: the name a is declared twice: a model above it answers to it already"
        );
        assert_eq!(
            refused(
                &format!("models:\n{}", model("a", "    aliases: [b]\n")),
                &["--model", "b=file:/m.gguf,memory=1GiB"]
            ),
            "--model b=file:/m.gguf,memory=1GiB: the name b is declared twice: \
             the model a in FILE answers to it already"
        );
    }

    #[test]
    fn fallbacks_are_looked_at_among_all_that_is_declared() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("llmgw.yaml");
        let shown = file.display().to_string();
        let settings = |fallbacks: [&str; 2], flags: &[&str]| {
            let model = |name: &str, fallbacks: &str| {
                format!(
                    "  - name: {name}\n    source: file:/m.gguf\n    fallbacks: [{fallbacks}]\n    \
                     profiles: [{{memory: 1GiB}}]\n"
                )
            };
            let [a, b] = fallbacks;
            let text = format!("models:\n{}{}", model("a", a), model("b", b));
            std::fs::write(&file, text).unwrap();
            let all: Vec<&str> = ["--config", &shown].iter().chain(flags).copied().collect();
            args(&all).unwrap().settings(true)
        };
        // What stands below and what the command line names count too.
        let flag = ["--model", "c=file:/m.gguf,memory=1GiB"];
        let taken = settings(["b, c", "c"], &flag).unwrap();
        assert_eq!(taken.models[0].fallbacks().len(), 2);
        for (fallbacks, problem) in [
            (
                ["", "a, c"],
                "FILE: models[1].fallbacks[1]: missing fallback: there is no model c",
            ),
            (
                ["b", "a"],
                "FILE: models[0].fallbacks[0]: fallbacks lead in a circle: a -> b -> a",
            ),
        ] {
            let fault = settings(fallbacks, &[]).unwrap_err();
            assert!(fault.is_usage() && fault.hint().is_some(), "{fault}");
            assert_eq!(fault.to_string().replace(&shown, "FILE"), problem);
        }
    }

    #[test]
    fn models_with_names_of_their_own_are_taken() {
        let flags = [
            "--model",
            "a=file:/m.gguf,memory=1GiB",
            "--model",
            "b=file:/m.gguf,memory=1GiB",
        ];
        let settings = args(&flags).unwrap().settings(true).unwrap();
        assert_eq!(settings.models.len(), 2);
    }
}
