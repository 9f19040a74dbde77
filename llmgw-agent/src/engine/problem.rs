use std::path::PathBuf;

use llmgw_core::{
    error::{Code, Coded},
    id::EngineName,
    units::Bytes,
};

/// Why an engine can't be started for a replica.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchProblem {
    /// Its weights have not the form that the engine reads.
    #[error("{engine} reads {need}, and {} is {have}", path.display())]
    Weights {
        /// The engine.
        engine: EngineName,
        /// What it reads, in words.
        need: &'static str,
        /// Where the weights are.
        path: PathBuf,
        /// What they are, in words.
        have: &'static str,
    },
    /// The memory of what it computes on is not known, and a part of it was asked for.
    #[error(
        "the memory of {} is not known, so that a part of it can't be told",
        numbers(gpus)
    )]
    CardUnknown {
        /// The numbers of the replica's GPUs; none when it computes on the processor.
        gpus: Vec<u32>,
    },
    /// A part that is none.
    #[error("{memory} of {card} is too small a part to be told")]
    ShareTooSmall {
        /// What was asked for.
        memory: Bytes,
        /// What there is.
        card: Bytes,
    },
}

impl Coded for LaunchProblem {
    fn code(&self) -> Code {
        Code::InvalidRequest
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Weights { .. } => {
                "give the model a source of the form that this engine reads, or the profile another engine"
            }
            Self::CardUnknown { .. } => {
                "leave the profile's gpus.memory out, so that it gets whole GPUs, or look why the driver does \
                 not answer the agent"
            }
            Self::ShareTooSmall { .. } => "give the profile more memory",
        };
        Some(hint.to_owned())
    }
}

fn numbers(gpus: &[u32]) -> String {
    match gpus {
        [] => "this machine".to_owned(),
        [one] => format!("GPU {one}"),
        many => {
            let many: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("GPUs {}", many.join(", "))
        }
    }
}
