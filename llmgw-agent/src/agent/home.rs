//! The agent's data directory: one agent at a time, and a lasting identity.
//!
//! `agent.lock` is locked for as long as an agent runs; its content says nothing. `node-id` holds the node's
//! id, made at the first start. Beside them stand what the other modules keep: `replicas/`, `logs/`,
//! `desired.json`, engines and weights.

use std::{
    fs::{self, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use llmgw_core::id::NodeId;

use super::AgentError;
use crate::durable;

/// A data directory that is ours.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) dir: PathBuf,
    pub(super) node: NodeId,
    /// Unlocked by the kernel, however the agent ends.
    _lock: fs::File,
}

impl Home {
    /// Makes the directory when it is missing, locks it, and reads or makes the node's id.
    pub(super) fn open(dir: &Path) -> Result<Self, AgentError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| AgentError::Directory { path, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed(dir))?;
        let dir = fs::canonicalize(dir).map_err(failed(dir))?;
        let path = dir.join("agent.lock");
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(durable::never_waits())
            .open(&path)
            .map_err(failed(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AgentError::Busy { dir }),
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        let path = dir.join("node-id");
        let node = node_id(&path).map_err(failed(&path))?;
        Ok(Self {
            dir,
            node,
            _lock: lock,
        })
    }
}

fn node_id(path: &Path) -> io::Result<NodeId> {
    match durable::read_text(path, durable::SMALL) {
        // A damaged id is not replaced: the node would come back as another one, beside itself.
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let node = NodeId::generate();
            durable::write(path, format!("{node}\n").as_bytes())?;
            Ok(node)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use llmgw_core::error::Coded as _;

    use super::*;

    #[test]
    fn a_node_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("deep/home");
        let first = Home::open(&home).unwrap();
        let node = first.node;
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(home.clone()), 0o700);
        assert_eq!(mode(home.join("node-id")), 0o600);
        drop(first);
        assert_eq!(Home::open(&home).unwrap().node, node);
        fs::write(home.join("node-id"), "node-zzz").unwrap();
        assert!(Home::open(&home).is_err());
    }

    #[test]
    fn an_id_that_is_no_file_is_named_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let id = dir.path().join("node-id");
        let pipe = || {
            let made = std::process::Command::new("mkfifo").arg(&id).status();
            assert!(made.unwrap().success());
        };
        let make: [(&str, &dyn Fn()); 3] = [
            ("it is a pipe", &pipe),
            ("it is a directory", &|| fs::create_dir(&id).unwrap()),
            ("it has 1.0 GiB", &|| {
                fs::File::create(&id).unwrap().set_len(1 << 30).unwrap();
            }),
        ];
        for (expected, make) in make {
            make();
            let error = Home::open(dir.path()).unwrap_err();
            let said = llmgw_core::error::Chain(&error).to_string();
            assert!(
                said.contains("node-id") && said.contains(expected),
                "{said}"
            );
            assert!(error.hint().unwrap().contains("put back"), "{said}");
            fs::remove_file(&id)
                .or_else(|_| fs::remove_dir(&id))
                .unwrap();
        }
        Home::open(dir.path()).unwrap();
    }

    #[test]
    fn a_second_agent_on_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Home::open(dir.path()).unwrap();
        let error = Home::open(dir.path()).unwrap_err();
        assert!(matches!(error, AgentError::Busy { .. }), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn a_directory_that_can_not_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Home::open(&file.join("home")).unwrap_err();
        assert!(error.to_string().contains("home"), "{error}");
    }
}
