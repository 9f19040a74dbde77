//! What came back: a bounded body, or the reason for none.

use std::{error::Error, io};

use reqwest::{Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::transport::{ANSWER_TIMEOUT, shown};
use crate::{
    api::admin::ErrorBody,
    control::ControlError,
    error::{Chain, Code},
};

/// Reads the answer to the end.
pub(super) async fn read<T: DeserializeOwned>(
    base: &Url,
    response: Response,
) -> Result<T, ControlError> {
    let status = response.status();
    let body = collect(base, response).await?;
    if !status.is_success() {
        return Err(refusal(base, status, &body));
    }
    serde_json::from_slice(&body).map_err(|error| {
        ControlError::new(
            Code::UpstreamError,
            format!("the answer of {} was not understood: {error}", shown(base)),
        )
        .with_hint("is that a control plane of this release?")
    })
}

/// Reads why nothing is streamed.
pub(super) async fn refused(base: &Url, response: Response) -> ControlError {
    let status = response.status();
    match collect(base, response).await {
        Ok(body) => refusal(base, status, &body),
        Err(error) => error,
    }
}

/// Says why there is no answer at all.
pub(super) fn unreachable(base: &Url, error: &reqwest::Error) -> ControlError {
    let base = shown(base);
    if error.is_connect() {
        let refused = io_kind(error) == Some(io::ErrorKind::ConnectionRefused);
        let message = format!("no control plane answers at {base}");
        let message = match root(error) {
            Some(cause) if !refused => format!("{message}: {cause}"),
            _ => message,
        };
        return ControlError::new(Code::Unavailable, message)
            .with_hint("start one with `llmgw up`");
    }
    if error.is_timeout() {
        return ControlError::new(
            Code::Unavailable,
            format!(
                "{base} did not answer within {} s",
                ANSWER_TIMEOUT.as_secs()
            ),
        );
    }
    let cause = root(error).map_or_else(|| Chain(error).to_string(), |cause| cause.to_string());
    ControlError::new(
        Code::UpstreamDisconnected,
        format!("{base} broke off: {cause}"),
    )
}

async fn collect(base: &Url, mut response: Response) -> Result<Vec<u8>, ControlError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(ControlError::new(
                    Code::UpstreamError,
                    format!("the answer of {} is larger than 16 MiB", shown(base)),
                ));
            }
            Err(error) => return Err(unreachable(base, &error)),
        }
    }
}

/// The control plane's own words, where these are its.
fn refusal(base: &Url, status: StatusCode, body: &[u8]) -> ControlError {
    let Ok(ErrorBody { error, code, hint }) = serde_json::from_slice(body) else {
        return ControlError::new(
            Code::UpstreamError,
            format!(
                "{} answered {status}, but not as a control plane does",
                shown(base)
            ),
        )
        .with_hint("is that the admin address of a control plane?");
    };
    ControlError {
        // A code of a newer release still has its status.
        code: serde_json::from_value(code.into()).unwrap_or_else(|_| implied(status)),
        message: error,
        hint,
    }
}

fn implied(status: StatusCode) -> Code {
    match status {
        StatusCode::UNAUTHORIZED => Code::InvalidApiKey,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::Conflict,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        status if status.is_client_error() => Code::InvalidRequest,
        _ => Code::UpstreamError,
    }
}

/// The innermost cause: reqwest's own levels say little, and repeat the address.
fn root(error: &reqwest::Error) -> Option<&(dyn Error + 'static)> {
    causes(error).last()
}

fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .map(io::Error::kind)
        .last()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

const MAX_ANSWER: usize = 16 << 20;
