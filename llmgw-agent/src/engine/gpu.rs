//! How engines are told of their GPUs.

use llmgw_core::{cluster::replica::ReplicaSpec, units::Bytes};

use super::LaunchProblem;

/// A part of a GPU, or of main memory, in ten-thousandths, rounded down: what was given is never exceeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Share(u32);

// === impl Share ===

impl Share {
    /// The part of its GPUs that the replica was given, or of main memory where it has no GPU; `None` when it was
    /// given its GPUs whole.
    ///
    /// # Errors
    /// When the memory of what it computes on is not known, or is ten thousand times what it was given.
    pub(super) fn of(
        spec: &ReplicaSpec,
        card: Option<Bytes>,
    ) -> Result<Option<Self>, LaunchProblem> {
        let memory = match &spec.profile.needs.gpus {
            None => Some(spec.profile.memory),
            Some(gpus) => gpus.memory,
        };
        let Some(memory) = memory else {
            return Ok(None);
        };
        let Some(card) = card.filter(|card| *card > Bytes::ZERO) else {
            return Err(LaunchProblem::CardUnknown {
                gpus: spec.gpus.clone(),
            });
        };
        let parts = u128::from(memory.0) * u128::from(WHOLE) / u128::from(card.0);
        match u32::try_from(parts).unwrap_or(u32::MAX).min(MOST) {
            0 => Err(LaunchProblem::ShareTooSmall { memory, card }),
            parts => Ok(Some(Self(parts))),
        }
    }

    /// So many thousandths of it.
    #[must_use]
    pub(super) fn thousandths(self, thousandths: u32) -> Self {
        Self(self.0.saturating_mul(thousandths) / 1_000)
    }

    /// As engines read it: `0.4321`.
    pub(super) fn text(self) -> String {
        format!("0.{:04}", self.0)
    }
}

const WHOLE: u32 = 10_000;
/// Of every GPU the driver keeps something: no engine starts with more than this part of it.
const MOST: u32 = 9_800;

#[cfg(test)]
mod tests {
    use llmgw_core::cluster::catalog::GpuNeed;

    use super::*;
    use crate::engine::openai::tests::spec;

    fn with_memory(memory: Option<Bytes>) -> ReplicaSpec {
        let mut spec = spec("vllm");
        spec.gpus = vec![3];
        spec.profile.needs.gpus = Some(GpuNeed {
            count: 1,
            classes: Vec::new(),
            memory,
        });
        spec
    }

    #[test]
    fn a_share_is_rounded_down_and_leaves_the_driver_its_part() {
        let text = |memory, card| {
            Share::of(&with_memory(Some(memory)), Some(card)).map(|share| share.unwrap().text())
        };
        assert_eq!(text(Bytes::gib(40), Bytes::gib(80)).unwrap(), "0.5000");
        assert_eq!(text(Bytes::gib(1), Bytes::gib(3)).unwrap(), "0.3333");
        assert_eq!(text(Bytes::gib(80), Bytes::gib(80)).unwrap(), "0.9800");
        assert_eq!(text(Bytes(u64::MAX), Bytes(1)).unwrap(), "0.9800");
        assert!(matches!(
            text(Bytes(1), Bytes::gib(80)),
            Err(LaunchProblem::ShareTooSmall { .. })
        ));
    }

    #[test]
    fn without_a_gpu_it_is_a_part_of_main_memory() {
        let share = Share::of(&spec("vllm"), Some(Bytes::mib(8_000))).unwrap();
        assert_eq!(share.unwrap().text(), "0.1000");
        let error = Share::of(&spec("vllm"), None).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the memory of this machine is not known")
        );
    }

    #[test]
    fn a_whole_gpu_needs_no_share_and_a_part_needs_the_size_of_the_card() {
        assert_eq!(Share::of(&with_memory(None), None), Ok(None));
        let error = Share::of(&with_memory(Some(Bytes::gib(1))), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the memory of GPU 3 is not known, so that a part of it can't be told"
        );
    }
}
