//! What a path and a method ask for.

use http::Method;

use super::{dialect::Dialect, ollama::Question, refusal::Refusal};
use crate::error::Code;

/// What a client asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// An inference call, passed to an engine.
    Inference(&'static Dialect),
    /// The list of models.
    Models,
    /// One model.
    Model(String),
    /// What Ollama's clients ask of the gateway itself.
    Ollama(Question),
    /// Whether this process lives.
    Health,
    /// Whether anything serves.
    Ready,
}

// === impl Target ===

impl Target {
    /// Reads a request line.
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, Refusal> {
        if method == Method::CONNECT {
            // It names a host and a port, and has no path.
            let message = "this is a gateway to models, not a proxy: it does not take CONNECT";
            return Err(Refusal::new(Code::MethodNotAllowed, message).with_allow("GET, HEAD, POST"));
        }
        let (target, methods) = match Dialect::of(path) {
            Some(dialect) => (Self::Inference(dialect), POST),
            None => match Question::of(path) {
                Some((question, methods)) => (Self::Ollama(question), methods),
                None => (Self::of_ours(path)?, GET),
            },
        };
        let allowed = match methods {
            POST => method == Method::POST,
            _ => method == Method::GET || method == Method::HEAD,
        };
        if !allowed {
            let message = format!("{path} takes {methods}, not this method");
            return Err(Refusal::new(Code::MethodNotAllowed, message).with_allow(methods));
        }
        Ok(target)
    }

    /// What the gateway answers itself.
    fn of_ours(path: &str) -> Result<Self, Refusal> {
        Ok(match path {
            "/v1/models" => Self::Models,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            _ => match path.strip_prefix("/v1/models/").map(percent_decoded) {
                Some(Some(name)) if !name.is_empty() => Self::Model(name),
                _ => return Err(unknown(path)),
            },
        })
    }
}

fn unknown(path: &str) -> Refusal {
    let shown: String = path.chars().take(128).collect();
    let hint = if path.starts_with("/v1/") || path.starts_with("/api/") {
        ""
    } else {
        "; the API is under /v1"
    };
    Refusal::new(Code::UnknownUrl, format!("there is no {shown}{hint}"))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

const POST: &str = "POST";
const GET: &str = "GET, HEAD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_ids_may_have_slashes_and_escapes() {
        let model = |path: &str| Target::of(&Method::GET, path).unwrap();
        assert_eq!(
            model("/v1/models/org/m:7b"),
            Target::Model("org/m:7b".into())
        );
        assert_eq!(
            model("/v1/models/org%2Fm%3a7b"),
            Target::Model("org/m:7b".into())
        );
    }

    #[test]
    fn unknown_paths_and_wrong_methods_are_told_apart() {
        let status = |method: Method, path: &str| Target::of(&method, path).unwrap_err().status();
        for path in [
            "/",
            "/chat/completions",
            "/v1/models/",
            "/v1/models/%zz",
            "/v1/models/%ff",
        ] {
            assert_eq!(status(Method::GET, path), 404, "{path}");
        }
        assert_eq!(status(Method::GET, "/v1/chat/completions"), 405);
        assert_eq!(status(Method::POST, "/v1/models"), 405);
        assert_eq!(Target::of(&Method::HEAD, "/readyz").unwrap(), Target::Ready);
    }
}
