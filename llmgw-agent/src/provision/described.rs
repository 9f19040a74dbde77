//! An engine that an operator describes: its program is there, or it is not.

use std::path::Path;

use llmgw_core::{cluster::engine::custom::CustomEngine, id::EngineName};
use rustix::fs::{Access, access};

use super::{ProgramProblem, ProvisionError};
use crate::engine::{InstalledEngine, Launch};

/// Looks whether the program may be run. What it is nobody knows, so it is not asked for a version.
pub(super) async fn check_described(
    name: EngineName,
    engine: CustomEngine,
) -> Result<InstalledEngine, ProvisionError> {
    let path = Path::new(engine.program());
    let refused = |problem| ProvisionError::Program {
        path: path.to_owned(),
        problem,
    };
    match tokio::fs::metadata(path).await {
        Err(_) => return Err(refused(ProgramProblem::Missing)),
        Ok(found) if !found.is_file() || access(path, Access::EXEC_OK).is_err() => {
            return Err(refused(ProgramProblem::NotExecutable));
        }
        Ok(_) => {}
    }
    Ok(InstalledEngine {
        name,
        version: engine.version().to_owned(),
        variant: "custom".to_owned(),
        launch: Launch::Custom(Box::new(engine)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn checked(program: &str) -> Result<InstalledEngine, ProvisionError> {
        let engine = json!({"command": [program, "{port}"], "health": "/h", "version": "7"});
        check_described(
            "mine".parse().unwrap(),
            serde_json::from_value(engine).unwrap(),
        )
        .await
    }

    #[tokio::test]
    async fn a_described_engine_is_installed_when_its_program_may_be_run() {
        let installed = checked("/bin/sh").await.unwrap();
        assert_eq!(
            (installed.version.as_str(), installed.variant.as_str()),
            ("7", "custom")
        );
        for (program, problem) in [
            ("/nonexistent/server", ProgramProblem::Missing),
            ("/etc/passwd", ProgramProblem::NotExecutable),
            ("/tmp", ProgramProblem::NotExecutable),
        ] {
            let error = checked(program).await.unwrap_err();
            let ProvisionError::Program { problem: found, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(found, problem, "{program}");
        }
    }
}
