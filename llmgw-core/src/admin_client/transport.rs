//! The address of a control plane, and the connections to it.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::{
    control::ControlError,
    error::{Chain, Code},
};

/// Reads the address of a control plane.
pub(super) fn address(text: &str) -> Result<Url, ControlError> {
    let problem = |problem: &str| {
        // The text itself may hold a password, so it is not repeated.
        ControlError::new(
            Code::InvalidRequest,
            format!("the admin address can't be used: {problem}"),
        )
        .with_hint("one looks like http://127.0.0.1:8082")
    };
    let url = Url::parse(text).map_err(|error| problem(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(problem("it begins with neither http:// nor https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(problem("it holds a user name or a password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(problem("it has a query or a fragment"));
    }
    Ok(url)
}

/// The address as it stands in messages: without the slash that no one typed.
pub(super) fn shown(base: &Url) -> &str {
    base.as_str().trim_end_matches('/')
}

/// A client for `base` alone.
pub(super) fn client(base: &Url) -> Result<Client, ControlError> {
    let tls = tls(base.as_str())?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build()
        .map_err(|error| internal(&error))
}

/// How to trust the server at `address`: by this machine's root certificates. They are read from disk for an `https`
/// address alone; reqwest wants a configuration even for a plain one.
///
/// # Errors
/// When the machine has no root certificates.
pub fn tls(address: &str) -> Result<ClientConfig, ControlError> {
    let mut roots = RootCertStore::empty();
    if address.starts_with("https:") {
        let found = rustls_native_certs::load_native_certs();
        let (added, _ignored) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err(ControlError::new(
                Code::Unavailable,
                "this machine has no root certificates to check the server's with",
            )
            .with_hint("install them (Debian: ca-certificates), or use http on loopback"));
        }
    }
    let provider = Arc::new(ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| internal(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn internal(error: &dyn std::error::Error) -> ControlError {
    ControlError::new(
        Code::Internal,
        format!("making an HTTP client: {}", Chain(error)),
    )
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the admin API gives itself (30 s), so that its own refusal is what is seen.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// Shorter than the admin API keeps an idle connection (30 s): none is used while it is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
