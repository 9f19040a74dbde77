//! What a person needs once the first model serves: the key, and a line to paste.

use std::{net::SocketAddr, path::PathBuf};

use llmgw_server::args::default_data_dir;

use super::progress::say;

/// What is told when the first model serves.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Where everything is kept, in full.
    pub(super) data_dir: PathBuf,
    pub(super) key: KeyIs,
}

/// Where the API key is.
#[derive(Clone)]
pub(super) enum KeyIs {
    /// Shown now, and never again.
    Shown(String),
    /// In a file that was asked for.
    InFile(PathBuf),
    /// Shown at the first start.
    ShownBefore,
}

impl Greeting {
    /// Tells the key, and where operators ask. Said once: with the first model that serves, or that can't.
    pub(super) fn tell_key(&self) {
        match &self.key {
            KeyIs::Shown(secret) => say(&format!("the API key, shown this once: {secret}")),
            KeyIs::InFile(file) => say(&format!("the API key is in {}", file.display())),
            KeyIs::ShownBefore => say("the API key is one that was made before: \
                 `export LLMGW_API_KEY=sk-llmgw-…` for the line below; \
                 lost it? `llmgw ctl keys create NAME` makes another"),
        }
        let usual = default_data_dir().and_then(|usual| usual.canonicalize().ok());
        let directory = if usual.as_ref() == Some(&self.data_dir) {
            String::new()
        } else {
            let directory = self.data_dir.display().to_string();
            format!(" --data-dir {}", shell_quoted(&directory))
        };
        say(&format!(
            "admin API on http://{}: `llmgw ctl{directory} status`",
            self.admin
        ));
    }

    /// Gives the line to paste.
    #[expect(
        clippy::print_stdout,
        reason = "the line to paste is this command's data"
    )]
    pub(super) fn try_it(&self, model: &str) {
        say("try it:");
        println!("{}", self.curl(model));
    }

    /// A line that works as pasted.
    fn curl(&self, model: &str) -> String {
        // An address that means every interface is reached on this machine by loopback.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let authorization = match &self.key {
            KeyIs::Shown(secret) => format!("'Authorization: Bearer {secret}'"),
            KeyIs::InFile(file) => {
                let file = shell_quoted(&file.display().to_string());
                format!("\"Authorization: Bearer $(cat {file})\"")
            }
            KeyIs::ShownBefore => "\"Authorization: Bearer $LLMGW_API_KEY\"".to_owned(),
        };
        let body = serde_json::json!({
            "model": model,
            "messages": [{"role": "user", "content": "Say hello in one sentence."}],
        });
        format!(
            "curl http://{address}/v1/chat/completions -H {authorization} \
             -H 'Content-Type: application/json' -d '{body}'"
        )
    }
}

impl std::fmt::Debug for KeyIs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shown(_) => "Shown(…)",
            Self::InFile(_) => "InFile",
            Self::ShownBefore => "ShownBefore",
        })
    }
}

/// A path as a shell reads it, also inside double quotes' `$(…)`.
fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_names_an_address_that_can_be_reached() {
        let greeting = Greeting {
            address: "0.0.0.0:8080".parse().unwrap(),
            admin: "127.0.0.1:8082".parse().unwrap(),
            data_dir: PathBuf::from("/data"),
            key: KeyIs::InFile(PathBuf::from("/home/some one/it's key")),
        };
        let line = greeting.curl("m");
        assert!(
            line.starts_with("curl http://127.0.0.1:8080/v1/chat/completions "),
            "{line}"
        );
        assert!(
            line.contains(r"$(cat '/home/some one/it'\''s key')"),
            "{line}"
        );
    }
}
