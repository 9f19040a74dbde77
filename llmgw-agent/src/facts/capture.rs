//! A machine as a directory: what its probes read, so that it can be looked at elsewhere.
//!
//! A tree holds the files that probes read, at their paths from `/`, and beside them two files of ours:
//! `machine.json` with what no file says ([`Machine`]), and `nvml.json` with the answers of NVIDIA's library
//! ([`Reading`](super::gpu::nvml::Reading)). [`record`] writes one of this machine.
//!
//! It holds no contents of anyone's files, no environment, no command lines and no log but the driver's error
//! lines; it does hold the machine's name, its mounts, its addresses and the serial names of its GPUs.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use llmgw_core::{
    cluster::node::{ClockOffset, NodeFacts},
    error::{Code, Coded},
    units::Bytes,
};
use serde::{Deserialize, Serialize};

use super::{
    Probe, Root, Scene,
    gpu::nvml,
    look, probes,
    root::{Entry, Notes},
};

/// What a captured machine answers where a running one is asked.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Machine {
    /// The version of this form: [`FORMAT`].
    pub format: u32,
    /// The release that has written it; absent in a tree that was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_by: Option<String>,
    /// The processor architecture, as Rust names it.
    pub arch: String,
    /// The directory whose disk is looked at, without links.
    pub data_dir: PathBuf,
    /// The sizes of disks, by where they are mounted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<PathBuf, DiskSizes>,
    /// The address from which the agent would speak with the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_address: Option<String>,
    /// How far its clock is from the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

/// The size of a disk, and what may still be written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DiskSizes {
    /// Its size.
    pub total: Bytes,
    /// What may still be written.
    pub free: Bytes,
}

/// Says why a tree can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// A file or directory could not be used.
    #[error("using {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file of ours is not in our form.
    #[error("{} is not what a captured machine holds", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// A file of ours is larger than any that we write.
    #[error("{} has more than {limit}", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// What it may have.
        limit: Bytes,
    },
    /// The tree is of a form that this release does not know.
    #[error("{} is of format {found}, and this release reads format {FORMAT}", path.display())]
    Format {
        /// Which file says so.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// There is something at the place of a new tree.
    #[error("{} is not empty", .0.display())]
    Occupied(PathBuf),
}

/// Opens a captured machine.
///
/// # Errors
/// When `dir` holds no `machine.json` in our form, or an `nvml.json` that is not in it.
pub fn open(dir: &Path) -> Result<Scene, CaptureError> {
    let path = dir.join(MACHINE);
    let machine: Machine =
        serde_json::from_slice(&ours(&path)?).map_err(|source| CaptureError::Malformed {
            path: path.clone(),
            source,
        })?;
    if machine.format != FORMAT {
        return Err(CaptureError::Format {
            path,
            found: machine.format,
        });
    }
    let path = dir.join(nvml::FILE);
    if path.exists() {
        // What is wrong with the library is an answer too; only what is not in our form is refused here.
        let answer = nvml::parse(&ours(&path)?);
        drop(answer.map_err(|source| CaptureError::Malformed { path, source })?);
    }
    Ok(Scene {
        data_dir: machine.data_dir.clone(),
        arch: machine.arch.clone(),
        root: Root::captured(dir, machine),
        held: Bytes::ZERO,
    })
}

/// Looks at this machine, and writes what was read to `dir`, which is made.
///
/// # Errors
/// When `dir` is there already and not empty, or can't be written.
pub fn record(scene: Scene, dir: &Path) -> Result<NodeFacts, CaptureError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CaptureError::File { path, source }
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    if fs::read_dir(dir).map_err(failed(dir))?.next().is_some() {
        return Err(CaptureError::Occupied(dir.to_owned()));
    }
    let notes = Arc::new(Mutex::new(Notes::default()));
    let scene = Scene {
        root: scene.root.noting(&notes),
        ..scene
    };
    let probes: Vec<Box<dyn Probe>> = probes(&scene.root);
    let facts = look(&probes, &scene);
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = Machine {
        format: FORMAT,
        recorded_by: Some(env!("CARGO_PKG_VERSION").to_owned()),
        arch: scene.arch.clone(),
        data_dir: scene
            .root
            .resolve(&scene.data_dir)
            .unwrap_or_else(|| scene.data_dir.clone()),
        disks: std::mem::take(&mut notes.disks),
        management_address: facts.management_address.clone(),
        clock: facts.clock,
    };
    let text = serde_json::to_vec_pretty(&machine).map_err(|source| CaptureError::Malformed {
        path: dir.join(MACHINE),
        source,
    })?;
    notes.files.insert(PathBuf::from(MACHINE), text);
    for (path, names) in &notes.dirs {
        fs::create_dir_all(dir.join(path)).map_err(failed(path))?;
        for (name, entry) in names {
            let at = path.join(name);
            match entry {
                Entry::Directory => fs::create_dir_all(dir.join(&at)).map_err(failed(&at))?,
                // What was read of it comes later; a file that was not read is empty.
                Entry::File => fs::write(dir.join(&at), []).map_err(failed(&at))?,
            }
        }
    }
    for (path, bytes) in &notes.files {
        let at = dir.join(path);
        if let Some(above) = at.parent() {
            fs::create_dir_all(above).map_err(failed(above))?;
        }
        fs::write(&at, bytes).map_err(failed(&at))?;
    }
    Ok(facts)
}

/// The bytes of a file of ours.
fn ours(path: &Path) -> Result<Vec<u8>, CaptureError> {
    let failed = |source| CaptureError::File {
        path: path.to_owned(),
        source,
    };
    let file = fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(OURS_LIMIT.0 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > OURS_LIMIT.0) {
        return Err(CaptureError::TooLarge {
            path: path.to_owned(),
            limit: OURS_LIMIT,
        });
    }
    Ok(bytes)
}

impl Coded for CaptureError {
    fn code(&self) -> Code {
        match self {
            Self::File { .. } => Code::Unavailable,
            Self::Malformed { .. } | Self::TooLarge { .. } | Self::Format { .. } => {
                Code::InvalidRequest
            }
            Self::Occupied(_) => Code::Conflict,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, source }
                if source.kind() == io::ErrorKind::NotFound && path.ends_with(MACHINE) =>
            {
                Some(
                    "`llmgw-agent facts --record DIR` on a machine makes such a directory"
                        .to_owned(),
                )
            }
            Self::Format { .. } => Some("record the machine again with this release".to_owned()),
            Self::Occupied(_) => Some("name a directory that is not there yet".to_owned()),
            Self::File { .. } | Self::Malformed { .. } | Self::TooLarge { .. } => None,
        }
    }
}

/// The version of the form of a tree. It grows when an older release would read a tree wrongly; new files and new
/// fields don't do that.
pub const FORMAT: u32 = 1;

const MACHINE: &str = "machine.json";

/// Sixteen cards with a hundred processes each are 200 kB.
const OURS_LIMIT: Bytes = Bytes::mib(4);
