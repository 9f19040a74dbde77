//! Kept or not: each judgement on one answer.

use std::fmt::Debug;

use super::Violation;
use crate::{control::ControlError, error::Code};

pub(super) fn done<T>(
    promise: &'static str,
    answer: Result<T, ControlError>,
) -> Result<T, Violation> {
    answer.map_err(|error| Violation {
        promise,
        found: format!("{} ({})", error.message, error.code),
    })
}

pub(super) fn refused<T: Debug>(
    promise: &'static str,
    code: Code,
    answer: Result<T, ControlError>,
) -> Result<ControlError, Violation> {
    match answer {
        Err(error) if error.code == code => Ok(error),
        other => Err(Violation {
            promise,
            found: format!("not {code}, but {other:?}"),
        }),
    }
}

pub(super) fn holds(promise: &'static str, kept: bool, seen: &impl Debug) -> Result<(), Violation> {
    if kept {
        return Ok(());
    }
    Err(Violation {
        promise,
        found: format!("{seen:?}"),
    })
}

pub(super) fn equal<T: Debug + PartialEq>(
    promise: &'static str,
    left: T,
    right: T,
) -> Result<(), Violation> {
    if left == right {
        return Ok(());
    }
    Err(Violation {
        promise,
        found: format!("{left:?} is not {right:?}"),
    })
}
