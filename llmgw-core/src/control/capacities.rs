//! What models were measured to do.

use std::fmt;

use async_trait::async_trait;

use super::ControlError;
use crate::{
    cluster::{
        capacity::{Capacity, Measurement},
        catalog::Model,
    },
    error::Code,
    id::ModelName,
};

/// What models were measured to do.
///
/// # Contract
/// As for [`Catalog`](super::Catalog). A measurement outlives its model.
#[async_trait]
pub trait Capacities: fmt::Debug + Send + Sync + 'static {
    /// The last measurement of each model and profile, by model, then by profile.
    async fn capacities(&self) -> Result<Vec<Capacity>, ControlError>;

    /// Keeps a measurement, in the place of the last one of that model and profile; accepts an alias.
    ///
    /// MUST refuse an unknown model ([`Code::NotFound`]), a profile that is not the model's, and one that measured
    /// nothing ([`Code::InvalidRequest`]).
    async fn record(
        &self,
        model: &ModelName,
        measurement: Measurement,
    ) -> Result<Capacity, ControlError>;
}

/// Checks a measurement as [`Capacities::record`] must.
///
/// # Errors
/// What `record` must answer.
pub fn check_measurement(model: &Model, measurement: &Measurement) -> Result<(), ControlError> {
    let wrong = |message: String| Err(ControlError::new(Code::InvalidRequest, message));
    if model.profile(&measurement.profile).is_none() {
        let names: Vec<&str> = model
            .profiles()
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        let (profile, model) = (&measurement.profile, model.name());
        let message = format!("profile: {model} has no profile {profile}");
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint(format!("it has {}", names.join(", "))));
    }
    if measurement.concurrency == 0 {
        return wrong("concurrency: no request was answered".to_owned());
    }
    let goal = &measurement.goal;
    if !goal.is_empty() && !super::holds::is_text(goal, super::holds::MAX_REASON) {
        return wrong("goal: it is longer than 500 characters, or no line".to_owned());
    }
    Ok(())
}
