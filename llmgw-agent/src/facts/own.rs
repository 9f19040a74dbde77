//! Whose a process is that holds a GPU's memory.

use std::os::unix::ffi::OsStrExt as _;

use super::Scene;
use crate::process::{DATA_DIR_MARK, REPLICA_MARK};

/// Whether a process is one of this agent's engines: it, or one that it descends from, was started with the marks
/// of a replica.
///
/// A process that can't be looked at, as one outside of our container, is not known to be ours.
pub(super) fn is_ours(scene: &Scene, pid: u32) -> bool {
    let mut next = pid;
    for _ in 0..DEPTH_LIMIT {
        // The environment is another's secret: it is compared here and noted nowhere.
        let environment = scene
            .root
            .read(format!("proc/{next}/environ").as_ref(), ENVIRONMENT_LIMIT);
        if environment.is_some_and(|environment| is_marked(scene, &environment)) {
            return true;
        }
        match parent(scene, next) {
            Some(parent) if parent > 1 => next = parent,
            _ => return false,
        }
    }
    false
}

fn is_marked(scene: &Scene, environment: &[u8]) -> bool {
    let value = |name: &str| {
        environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    value(REPLICA_MARK).is_some()
        && value(DATA_DIR_MARK) == Some(scene.data_dir.as_os_str().as_bytes())
}

fn parent(scene: &Scene, pid: u32) -> Option<u32> {
    let stat = scene.root.read(format!("proc/{pid}/stat").as_ref(), 4096)?;
    let stat = String::from_utf8_lossy(&stat);
    // `4242 (a) b) S 1 …`: the name may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Engines start workers, which start workers.
const DEPTH_LIMIT: usize = 16;

const ENVIRONMENT_LIMIT: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use llmgw_core::units::Bytes;

    use super::*;
    use crate::facts::{Root, capture::Machine};

    #[test]
    fn a_worker_is_ours_by_the_engine_that_started_it() {
        let dir = tempfile::tempdir().unwrap();
        let scene = Scene {
            root: Root::captured(dir.path(), Machine::default()),
            data_dir: "/var/lib/llmgw".into(),
            arch: "x86_64".to_owned(),
            held: Bytes::ZERO,
        };
        let process = |pid: u32, parent: u32, environment: &str| {
            let at = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("stat"), format!("{pid} (a) b) S {parent} 1 1")).unwrap();
            fs::write(at.join("environ"), environment).unwrap();
        };
        process(
            10,
            1,
            "PATH=/bin\0LLMGW_DATA_DIR=/var/lib/llmgw\0LLMGW_REPLICA=r\0",
        );
        process(11, 10, "");
        process(20, 1, "LLMGW_DATA_DIR=/var/lib/llmgw\0");
        process(30, 1, "LLMGW_DATA_DIR=/elsewhere\0LLMGW_REPLICA=r\0");
        process(40, 40, "");
        for (pid, ours) in [
            (10, true),
            (11, true),
            (20, false),
            (30, false),
            (40, false),
            (50, false),
        ] {
            assert_eq!(is_ours(&scene, pid), ours, "{pid}");
        }
    }
}
