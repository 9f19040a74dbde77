//! Backends that a processor can't run, put aside.
//!
//! Some builds carry their CPU code once for each family of processors, as `libggml-cpu-<family>.so`, and load
//! the best of those that say they fit. One that says so and is wrong (a virtual machine that hides a part of
//! the processor) dies at its first instruction of the hidden kind. Without that file the next best is loaded.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::fs;

use super::{ProvisionError, failed};

/// The CPU backend in `directory` that a program said it has loaded.
///
/// The line is llama.cpp's own: `load_backend: loaded CPU backend from /path/libggml-cpu-icelake.so`.
pub(super) fn loaded_backend(lines: &[String], directory: &Path) -> Option<PathBuf> {
    let path = lines.iter().find_map(|line| {
        line.split_once("loaded CPU backend from ")
            .map(|(_, path)| path)
    })?;
    let name = Path::new(path.trim()).file_name()?.to_str()?;
    // Of a build with one backend nothing could take its place.
    let family = name.strip_prefix("libggml-cpu-")?.strip_suffix(".so")?;
    (!family.is_empty()).then(|| directory.join(name))
}

/// Moves a backend into `quarantine/` beside it. Says whether there is another that can be loaded instead.
pub(super) async fn put_aside(backend: &Path) -> Result<bool, ProvisionError> {
    let (Some(directory), Some(name)) = (backend.parent(), backend.file_name()) else {
        return Ok(false);
    };
    if others(directory, backend).await == 0 {
        return Ok(false);
    }
    let quarantine = directory.join("quarantine");
    fs::create_dir_all(&quarantine)
        .await
        .map_err(failed("making", &quarantine))?;
    match fs::rename(backend, quarantine.join(name)).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("moving", backend)(error)),
    }
}

async fn others(directory: &Path, backend: &Path) -> usize {
    let Ok(mut entries) = fs::read_dir(directory).await else {
        return 0;
    };
    let mut count = 0;
    while let Ok(Some(entry)) = entries.next_entry().await {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libggml-cpu-") && name.ends_with(".so") && entry.path() != backend {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_loaded_backend_is_put_aside_as_long_as_another_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["libggml-cpu-icelake.so", "libggml-cpu-haswell.so"] {
            std::fs::write(path(name), "").unwrap();
        }
        let said = "load_backend: loaded CPU backend from /elsewhere/libggml-cpu-icelake.so";
        let lines = ["Available devices:".to_owned(), said.to_owned()];
        let backend = loaded_backend(&lines, directory.path()).unwrap();
        assert_eq!(backend, path("libggml-cpu-icelake.so"));
        assert!(put_aside(&backend).await.unwrap());
        assert!(path("quarantine/libggml-cpu-icelake.so").exists() && !backend.exists());
        assert!(!put_aside(&path("libggml-cpu-haswell.so")).await.unwrap());
        assert!(path("libggml-cpu-haswell.so").exists());
    }

    #[test]
    fn a_build_with_one_backend_has_none_to_put_aside() {
        let said = "load_backend: loaded CPU backend from /x/libggml-cpu.so".to_owned();
        assert_eq!(loaded_backend(&[said], Path::new("/x")), None);
        assert_eq!(loaded_backend(&[], Path::new("/x")), None);
    }
}
