//! From a path to the shape of a model.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use llmgw_core::{
    error::Chain,
    gguf,
    header::ReadError,
    hf_config::{Config, MAX_BYTES},
    safetensors,
    units::Bytes,
};
use llmgw_sched::fit::{Shape, ShapeError};

use crate::failure::{Cause, Failure};

pub(super) fn shape(path: &Path, like: Option<&str>) -> Result<Shape, Failure> {
    let is_safetensors = path.extension().is_some_and(|end| end == "safetensors");
    // A pipe would be waited for, and a device has no end.
    let is_special = |found: std::fs::Metadata| !found.is_dir() && !found.is_file();
    if path.metadata().is_ok_and(is_special) {
        let text = format!("{} is no file", path.display());
        return Err(Failure::new(Cause::Usage, text).with_hint("save it to a file first"));
    }
    let shape = if path.is_dir() {
        of_safetensors(path, path, like)
    } else if is_safetensors {
        // A bare name stands in the current directory.
        let directory = path.parent().unwrap_or(path);
        of_safetensors(directory, path, like)
    } else {
        of_gguf(path, like)
    }?;
    if shape.weights() == Bytes::ZERO {
        let text = format!("{} holds no weights", path.display());
        let hint = "it may have been cut off: fetch it again";
        return Err(Failure::new(Cause::Usage, text).with_hint(hint));
    }
    Ok(shape)
}

fn of_gguf(path: &Path, like: Option<&str>) -> Result<Shape, Failure> {
    let header = gguf::open(path, &gguf::Limits::default()).map_err(|error| {
        let missing = matches!(
            &error.cause,
            gguf::OpenCause::Read(ReadError::Io(cause)) if cause.kind() == io::ErrorKind::NotFound
        );
        let hint = match &error.cause {
            gguf::OpenCause::Read(ReadError::Broken(broken)) => broken.hint.clone(),
            gguf::OpenCause::Read(ReadError::Truncated { .. }) => {
                Some("the file is not whole: fetch it again".to_owned())
            }
            gguf::OpenCause::Read(ReadError::Io(_)) => None,
            _ => Some(
                "give the first file of a split model, under its own name and beside all others"
                    .to_owned(),
            ),
        };
        failure(missing, &error, hint)
    })?;
    Shape::from_gguf(&header, like).map_err(|error| refused(path, &error))
}

fn of_safetensors(directory: &Path, weights: &Path, like: Option<&str>) -> Result<Shape, Failure> {
    let path = directory.join("config.json");
    let text = read_config(&path).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let text = format!("{}: reading the file: {error}", path.display());
        let cause = if missing {
            Cause::NotFound
        } else {
            Cause::Usage
        };
        Failure::new(cause, text)
            .with_hint("safetensors do not say how a model is built; its config.json does")
    })?;
    let config = Config::parse(&text).map_err(|error| refused(&path, &error.into()))?;
    let header = safetensors::open(weights, &safetensors::Limits::default()).map_err(|error| {
        let missing = matches!(
            &error.cause,
            safetensors::OpenCause::Read(ReadError::Io(cause)) if cause.kind() == io::ErrorKind::NotFound
        );
        failure(missing, &error, None)
    })?;
    Shape::from_config(&config, &header, like).map_err(|error| refused(&path, &error))
}

/// At most one byte more than is allowed, so that too much is seen to be.
fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut text = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

fn failure(missing: bool, error: &dyn std::error::Error, hint: Option<String>) -> Failure {
    let cause = if missing {
        Cause::NotFound
    } else {
        Cause::Usage
    };
    let failure = Failure::new(cause, Chain(error).to_string());
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

pub(super) fn refused(path: &Path, error: &ShapeError) -> Failure {
    let cause = match error {
        ShapeError::CannotBound { .. } => Cause::Refused,
        _ => Cause::Usage,
    };
    let failure = Failure::new(cause, format!("{}: {error}", path.display()));
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
