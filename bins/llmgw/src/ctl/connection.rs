//! Which control plane is asked, and with which token.

use std::{
    convert::Infallible,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;
use llmgw_core::{
    admin_client::AdminClient,
    control::{Actor, Control},
};
use llmgw_server::{admin::AdminToken, args::default_data_dir, data_dir::ADMIN_URL_FILE};

use crate::failure::{Cause, Failure};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Control plane")]
pub(crate) struct Connection {
    /// Where the admin API is [default: what a local control plane wrote down, else http://127.0.0.1:8082]
    #[arg(long, value_name = "URL", env = "LLMGW_ADMIN_URL", global = true)]
    admin_url: Option<String>,
    /// The admin token; read from the data directory when not given
    #[arg(
        long,
        value_name = "TOKEN",
        env = "LLMGW_ADMIN_TOKEN",
        hide_env_values = true,
        global = true
    )]
    admin_token: Option<Token>,
    /// Who orders, besides the token's holder; stands in the audit log
    #[arg(long, value_name = "NAME", env = "LLMGW_ACTOR", global = true)]
    actor: Option<String>,
    /// Where a local control plane keeps its files [default: $XDG_DATA_HOME/llmgw, else ~/.local/share/llmgw]
    #[arg(long, value_name = "DIR", env = "LLMGW_DATA_DIR", global = true)]
    data_dir: Option<PathBuf>,
}

/// A token that is in no message: not the parser's, and not ours.
#[derive(Clone)]
struct Token(String);

// === impl Token ===

impl FromStr for Token {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

// === impl Connection ===

impl Connection {
    /// The control roles of that control plane. Makes no connection yet.
    pub(crate) fn control(&self) -> Result<Control, Failure> {
        let Token(token) = match self.given() {
            Some(token) => token.clone(),
            None => read_token(&self.token_file()?)?,
        };
        let control = AdminClient::new(&self.url(), &token)?.control();
        let actor = self.actor.as_deref().filter(|name| !name.trim().is_empty());
        Ok(match actor {
            Some(name) if !name.is_ascii() => {
                let message = "--actor: it goes with each request in a header, which has only ASCII characters";
                return Err(Failure::new(Cause::Usage, message));
            }
            Some(name) => control.acting.acting_as(&Actor::named(name)?),
            None => control,
        })
    }

    /// Says where a token came from that was refused.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        if failure.cause != Cause::Token {
            return failure;
        }
        if self.given().is_some() {
            return failure.with_hint(
                "the right one is in admin.token in the control plane's data directory; this one came \
                 from --admin-token or LLMGW_ADMIN_TOKEN",
            );
        }
        match self.token_file() {
            Ok(path) => failure.with_hint(format!(
                "it came from {}; is that the data directory of the control plane at {}?",
                path.display(),
                self.url()
            )),
            Err(_) => failure,
        }
    }

    /// The address that was given, or that of the control plane of the data directory.
    fn url(&self) -> String {
        if let Some(url) = self.admin_url.as_ref().filter(|url| !url.is_empty()) {
            return url.clone();
        }
        let directory = self.data_dir.clone().or_else(default_data_dir);
        let written = directory.and_then(|directory| {
            let mut text = String::new();
            let file = File::open(directory.join(ADMIN_URL_FILE)).ok()?;
            file.take(MAX_TOKEN).read_to_string(&mut text).ok()?;
            Some(text.trim().to_owned())
        });
        let written = written.filter(|url| !url.is_empty());
        written.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    fn given(&self) -> Option<&Token> {
        // An empty variable is one that was not set.
        self.admin_token
            .as_ref()
            .filter(|token| !token.0.is_empty())
    }

    fn token_file(&self) -> Result<PathBuf, Failure> {
        self.data_dir
            .clone()
            .or_else(default_data_dir)
            .map(|directory| directory.join(AdminToken::FILE))
            .ok_or_else(|| {
                Failure::new(
                    Cause::Token,
                    "there is no admin token, and no home directory to look for it in",
                )
                .with_hint("give --admin-token TOKEN or --data-dir DIR")
            })
    }
}

fn read_token(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_TOKEN).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                // A cause of its own: the hint about a refused token would not fit.
                Failure::new(
                    Cause::Refused,
                    format!("there is no admin token: {shown} does not exist"),
                )
                .with_hint("start a control plane with `llmgw up`, or give --data-dir DIR or --admin-token TOKEN")
            }
            _ => Failure::new(Cause::Refused, format!("reading {shown}: {error}"))
                .with_hint("run this as the user who runs the control plane, or give --admin-token TOKEN"),
        })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::new(
            Cause::Refused,
            format!("{shown} holds no admin token"),
        ));
    }
    Ok(Token(token.to_owned()))
}

const DEFAULT_URL: &str = "http://127.0.0.1:8082";
/// A token is 64 characters; whatever is longer is another file.
const MAX_TOKEN: u64 = 4_096;
