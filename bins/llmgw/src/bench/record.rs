//! Keeps what was measured with the control plane, as the capacity of one replica.

use llmgw_core::{
    api::admin::ReplicaView,
    cluster::{capacity::Measurement, replica::ReplicaState},
    control::Control,
    id::ProfileName,
    units::Tokens,
};

use super::{Measured, sweep::Level};
use crate::failure::{Cause, Failure};

/// The replicas that answer while a model is measured: all on one profile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Subject {
    profile: ProfileName,
    replicas: u32,
}

impl Subject {
    /// Finds out what is measured.
    pub(super) async fn of(
        control: &Control,
        measured: &Measured,
        wanted: Option<&ProfileName>,
    ) -> Result<Self, Failure> {
        let replicas = control.fleet.replicas(Some(&measured.model)).await?;
        Self::among(&replicas, wanted)
    }

    fn among(replicas: &[ReplicaView], wanted: Option<&ProfileName>) -> Result<Self, Failure> {
        let ready = replicas
            .iter()
            .filter(|replica| replica.state == ReplicaState::Ready);
        let mut profiles: Vec<&ProfileName> = ready.map(|replica| &replica.profile).collect();
        let count = u32::try_from(profiles.len()).unwrap_or(u32::MAX);
        profiles.sort_unstable();
        profiles.dedup();
        let problem = |message: String| {
            Err(Failure::new(Cause::Refused, message).with_hint(
                "a measurement is of one profile: let replicas of that one alone run meanwhile",
            ))
        };
        match (profiles.as_slice(), wanted) {
            ([], _) => problem("no replica is ready any more: nothing is recorded".to_owned()),
            ([one], None) => Ok(Self {
                profile: (*one).clone(),
                replicas: count,
            }),
            ([one], Some(wanted)) if *one == wanted => Ok(Self {
                profile: (*one).clone(),
                replicas: count,
            }),
            (running, _) => {
                let running: Vec<&str> = running.iter().map(|name| name.as_str()).collect();
                problem(format!(
                    "replicas of {} answer: nothing is recorded",
                    running.join(", ")
                ))
            }
        }
    }

    /// What one of these replicas did, of what all of them did together.
    pub(super) fn measurement(&self, measured: &Measured, level: &Level) -> Measurement {
        let milliseconds = |seconds: Option<f64>| seconds.map(|seconds| whole(seconds * 1e3));
        let each = self.replicas.max(1);
        Measurement {
            profile: self.profile.clone(),
            concurrency: (level.concurrency / each).max(1),
            tokens_per_second: whole(level.tokens_per_second / f64::from(each)),
            time_to_first_token_ms: milliseconds(level.first_token_p95),
            inter_token_ms: milliseconds(level.between_tokens_p95),
            prompt_tokens: Some(Tokens(u64::from(measured.prompt_tokens))),
            completion_tokens: Some(Tokens(u64::from(measured.answer_tokens))),
            goal: measured.goal.to_string(),
        }
    }
}

/// The nearest whole number; a cast from a float saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and nothing that is measured is negative"
)]
fn whole(value: f64) -> u32 {
    value.round() as u32
}
