//! Engines that are modules of a Python environment.

use std::{ffi::OsString, path::Path};

/// Where an engine finds programs: those of its environment first, for it may compile kernels with them.
pub(super) fn search_path(python: &Path) -> OsString {
    let mut path = OsString::new();
    if let Some(bin) = python.parent() {
        path.push(bin);
        path.push(":");
    }
    path.push(SYSTEM);
    path
}

/// The usual places, and that of CUDA's compiler.
const SYSTEM: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin";
