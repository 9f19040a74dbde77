//! A program that is already on the node.

use std::path::Path;

use llmgw_core::{error::Chain, id::EngineName};
use rustix::fs::{Access, access};

use super::{ProgramProblem, ProvisionError, Shop};
use crate::{
    command::{Helper, HelperError, Listener, Patience},
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
    let helper = Helper {
        program: path,
        args: vec!["--version".into()],
        env: &shop.config.marker_env,
        without: NOT_INHERITED,
        directory: Path::new("/"),
        patience: Patience::Whole(shop.times.version),
    };
    let finished = helper.run(&Listener::NONE).await.map_err(|error| {
        refused(match error {
            HelperError::Deadline { after, .. } => ProgramProblem::Slow(after),
            other => ProgramProblem::Unrunnable(Chain(&other).to_string()),
        })
    })?;
    let said = finished.last_line().to_owned();
    if !finished.status.success() {
        let how = finished.how();
        return Err(refused(ProgramProblem::Failed { how, said }));
    }
    let version = finished
        .lines
        .iter()
        .find_map(|line| build_number(line))
        .ok_or_else(|| refused(ProgramProblem::NoVersion { said }))?;
    Ok(InstalledEngine {
        name,
        version: format!("b{version}"),
        variant: "path".to_owned(),
        launch: Launch::Program {
            program: path.to_owned(),
        },
    })
}

/// The number in `version: 10991 (abc1234)`; some builds write it as `b10991`.
fn build_number(line: &str) -> Option<u64> {
    let rest = line.trim().strip_prefix("version:")?.trim_start();
    let word = rest.split_whitespace().next()?;
    word.strip_prefix('b').unwrap_or(word).parse().ok()
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
        for other in [
            "",
            "version:",
            "version: (x)",
            "version: -1",
            "built with cc 13",
        ] {
            assert_eq!(build_number(other), None, "{other:?}");
        }
    }
}
