//! Asking a server program what it is.

use std::{convert::Infallible, future::pending, path::Path, time::Duration};

use llmgw_core::{
    error::Chain,
    id::{EngineName, ReplicaId},
};
use rustix::fs::{Access, access};

use super::{ProgramProblem, ProvisionError, Shop, compute::MARK, problem::BuildProblem};
use crate::{
    command::{Attended, Bounds, Finished, Helper, HelperError, Inherits, Listener, Patience},
    engine::{InstalledEngine, Launch},
};

/// Runs the program at `path` for its version.
pub(super) async fn check_program(
    name: EngineName,
    path: &Path,
    shop: &Shop,
) -> Result<InstalledEngine, ProvisionError> {
    let refused = |problem| ProvisionError::Program {
        path: path.to_owned(),
        problem,
    };
    if !path.is_absolute() {
        return Err(refused(ProgramProblem::Relative));
    }
    match tokio::fs::metadata(path).await {
        Err(_) => return Err(refused(ProgramProblem::Missing)),
        Ok(found) if !found.is_file() || access(path, Access::EXEC_OK).is_err() => {
            return Err(refused(ProgramProblem::NotExecutable));
        }
        Ok(_) => {}
    }
    let number = version(path, Path::new("/"), shop).await.map_err(refused)?;
    Ok(InstalledEngine {
        name,
        version: format!("b{number}"),
        variant: "path".to_owned(),
        launch: Launch::Program {
            program: path.to_owned(),
        },
    })
}

/// The build number that the program at `path` says.
pub(super) async fn version(
    path: &Path,
    directory: &Path,
    shop: &Shop,
) -> Result<u64, ProgramProblem> {
    let finished = ask(path, "--version", directory, shop.times.version, shop)
        .await
        .map_err(|error| match error {
            HelperError::Deadline { after, .. } => ProgramProblem::Slow(after),
            other => ProgramProblem::Unrunnable(Chain(&other).to_string()),
        })?;
    let said = finished.last_line().to_owned();
    if !finished.status.success() {
        let how = finished.how();
        return Err(ProgramProblem::Failed { how, said });
    }
    finished
        .lines
        .iter()
        .find_map(|line| build_number(line))
        .ok_or(ProgramProblem::NoVersion { said })
}

/// Runs the program with one argument to its end: with the environment that it is started with later and nothing of
/// the agent's own, within bounds, and with nothing left of what it starts.
async fn ask(
    path: &Path,
    argument: &str,
    directory: &Path,
    within: Duration,
    shop: &Shop,
) -> Result<Finished, HelperError> {
    let env = shop.engine_env();
    let helper = Helper {
        program: path,
        args: vec![argument.into()],
        env: &env,
        inherits: Inherits::Basics,
        without: NOT_INHERITED,
        directory,
        patience: Patience::Whole(within),
    };
    let bounds = Bounds {
        // Of all threads together.
        cpu: within.saturating_mul(64),
        memory: None,
        mark: (MARK.into(), ReplicaId::generate().to_string().into()),
    };
    let asked = helper.attend(&bounds, &Listener::NONE, pending::<Infallible>());
    match asked.await? {
        Attended::Ended(finished) => Ok(finished),
        Attended::Done(never) => match never {},
    }
}

/// The devices that the program at `path` computes on, besides the processor.
pub(super) async fn devices(
    path: &Path,
    directory: &Path,
    shop: &Shop,
) -> Result<(Vec<Device>, String), BuildProblem> {
    let asked = ask(path, "--list-devices", directory, shop.times.devices, shop).await;
    match asked {
        Ok(finished) => {
            let found = finished.lines.iter().filter_map(|line| Device::parse(line));
            let said = if finished.status.success() {
                finished.last_line().to_owned()
            } else {
                format!("{}: {}", finished.how(), finished.last_line())
            };
            Ok((found.collect(), said))
        }
        Err(HelperError::Deadline { after, .. }) => Err(BuildProblem::SlowDevices { after }),
        Err(other) => Ok((Vec::new(), Chain(&other).to_string())),
    }
}

/// What the program at `path` prints when it lists its devices.
pub(super) async fn listing(path: &Path, directory: &Path, shop: &Shop) -> Vec<String> {
    let asked = ask(path, "--list-devices", directory, shop.times.devices, shop).await;
    asked.map_or_else(|_| Vec::new(), |finished| finished.lines)
}

/// A device that a build lists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Device {
    /// As the engine calls it: `CUDA0`, `Vulkan1`.
    pub name: String,
    /// What it is.
    pub description: String,
}

impl Device {
    /// Reads `  CUDA0: NVIDIA H200 (143771 MiB, 143253 MiB free)`; other lines are none.
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.trim().split_once(": ")?;
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_name = !letters.is_empty()
            && letters.len() < name.len()
            && letters.chars().all(|c| c.is_ascii_alphanumeric());
        let (description, memory) = rest.rsplit_once(" (")?;
        (is_name && memory.contains("MiB")).then(|| Self {
            name: name.to_owned(),
            description: description.to_owned(),
        })
    }
}

/// The number in `version: 10991 (abc1234)` and in `version: 0.1.0-dev (build 10991, commit abc1234)`; some builds
/// write it as `b10991`.
fn build_number(line: &str) -> Option<u64> {
    let rest = line.trim().strip_prefix("version:")?.trim_start();
    let number = |word: &str| word.strip_prefix('b').unwrap_or(word).parse().ok();
    rest.split_whitespace().next().and_then(number).or_else(|| {
        let (_, build) = rest.split_once("(build ")?;
        number(build.split([',', ')']).next()?)
    })
}

/// The engine is later started without them, and must work so.
pub(super) const NOT_INHERITED: &[&str] = &["LD_LIBRARY_PATH", "LD_PRELOAD"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_numbers_are_read_in_both_forms() {
        assert_eq!(build_number("version: 10991 (abc1234)"), Some(10_991));
        assert_eq!(build_number("  version: b10991"), Some(10_991));
        let newer = "version: 0.1.0-dev (build 10991, commit abc1234)";
        assert_eq!(build_number(newer), Some(10_991));
        for other in [
            "",
            "version:",
            "version: (x)",
            "version: -1",
            "version: 0.1.0-dev (build x, commit y)",
            "built with cc 13",
        ] {
            assert_eq!(build_number(other), None, "{other:?}");
        }
    }

    #[test]
    fn devices_are_read_from_their_lines_and_from_no_others() {
        let device = Device::parse("  CUDA0: NVIDIA H200 (143771 MiB, 143253 MiB free)").unwrap();
        assert_eq!(
            (device.name.as_str(), device.description.as_str()),
            ("CUDA0", "NVIDIA H200")
        );
        let radeon = "  Vulkan1: AMD Radeon RX 7900 XTX (RADV NAVI31) (24576 MiB, 24100 MiB free)";
        assert_eq!(
            Device::parse(radeon).unwrap().description,
            "AMD Radeon RX 7900 XTX (RADV NAVI31)"
        );
        for other in [
            "Available devices:",
            "ggml_cuda_init: found 1 CUDA devices:",
            "  Device 0: NVIDIA H200, compute capability 9.0, VMM: yes",
            "",
            "warning: no GPU (see 3 MiB)",
        ] {
            assert_eq!(Device::parse(other), None, "{other:?}");
        }
    }
}
