//! Whether everything that a directory of programs and libraries needs is on this machine.
//!
//! Each object's needs are looked for as the loader does: along its run path, in the loader's cache and in the
//! usual directories. What any object of the same directory provides counts as found, because the loader takes a
//! library that is loaded already by its name alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use llmgw_core::cluster::node::MajorMinor;

use super::{
    cache::cached_names,
    elf::{self, Needs},
};

/// What is wrong with a directory of objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Findings {
    /// Libraries that are nowhere, with the objects that need them.
    pub missing: BTreeMap<String, BTreeSet<String>>,
    /// Objects that can't be used at all, and why.
    pub unusable: BTreeMap<String, String>,
    /// The newest GNU C library that is asked for, and an object that does.
    pub glibc: Option<(MajorMinor, String)>,
}

/// Looks at every object below `directory`. `root` stands for `/`.
pub(super) fn look(directory: &Path, root: &Path, arch: &str) -> io::Result<Findings> {
    let mut findings = Findings::default();
    let mut objects = Vec::new();
    let mut here = BTreeSet::new();
    for path in files(directory)? {
        let name = shown(&path, directory);
        match elf::needs(&path) {
            Ok(None) => continue,
            Ok(Some(needs)) => objects.push((path.clone(), name, needs)),
            Err(error) => {
                findings.unusable.insert(name, error.to_string());
            }
        }
        here.extend(
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    here.extend(
        objects
            .iter()
            .filter_map(|(_, _, needs)| needs.soname.clone()),
    );
    let cached = cached_names(root);
    let usual: Vec<PathBuf> = usual_directories(arch)
        .iter()
        .map(|directory| beneath(root, directory))
        .collect();
    for (path, name, needs) in &objects {
        let Needs {
            libraries,
            run_path,
            interpreter,
            glibc,
            machine,
            soname: _,
        } = needs;
        if !runs_on(*machine, arch) {
            let problem = format!("it is not for {arch}");
            findings.unusable.insert(name.clone(), problem);
            continue;
        }
        if let Some(interpreter) = interpreter
            && !beneath(root, interpreter).exists()
        {
            let problem = format!("its loader {interpreter} is not on this machine");
            findings.unusable.insert(name.clone(), problem);
        }
        if let Some(version) = glibc
            && findings
                .glibc
                .as_ref()
                .is_none_or(|(most, _)| version > most)
        {
            findings.glibc = Some((*version, name.clone()));
        }
        let origin = path.parent().unwrap_or(directory);
        for library in libraries {
            let along = |entry: &String| {
                let entry = entry
                    .replace("${ORIGIN}", "$ORIGIN")
                    .replace("$ORIGIN", &origin.to_string_lossy());
                Path::new(&entry).is_absolute() && Path::new(&entry).join(library).exists()
            };
            let found = here.contains(library)
                || cached.contains(library)
                || run_path.iter().any(along)
                || usual
                    .iter()
                    .any(|directory| directory.join(library).exists());
            if !found {
                let needed_by = findings.missing.entry(library.clone()).or_default();
                needed_by.insert(name.clone());
            }
        }
    }
    Ok(findings)
}

/// The name of a library as people know it, and where it comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Provider {
    /// Packages of the system, by what Debian and its like, and Fedora and its like, call them. Newer releases
    /// of Debian have another name: it is tried when the first is not known.
    Package {
        deb: &'static [&'static str],
        rpm: &'static str,
    },
    /// A driver, which only the machine's operator installs.
    Driver(&'static str),
    /// The toolkit's runtime, which comes in an archive of its own.
    Runtime,
}

/// Who provides a library; `None` when nobody is known.
pub(super) fn provider(library: &str) -> Option<Provider> {
    let stem = library.split(".so").next().unwrap_or(library);
    let package = |deb, rpm| Some(Provider::Package { deb, rpm });
    match stem {
        "libgomp" => package(&["libgomp1"], "libgomp"),
        "libssl" | "libcrypto" => package(&["libssl3", "libssl3t64"], "openssl-libs"),
        "libcurl" => package(&["libcurl4", "libcurl4t64"], "libcurl"),
        "libvulkan" => package(&["libvulkan1"], "vulkan-loader"),
        "libstdc++" => package(&["libstdc++6"], "libstdc++"),
        "libgcc_s" => package(&["libgcc-s1"], "libgcc"),
        "libnuma" => package(&["libnuma1"], "numactl-libs"),
        "libopenblas" => package(&["libopenblas0"], "openblas"),
        "libz" => package(&["zlib1g"], "zlib"),
        "libcuda" | "libnvidia-ml" => Some(Provider::Driver("NVIDIA's driver")),
        "libamdhip64" | "librocblas" | "libhipblas" => Some(Provider::Driver("AMD's ROCm")),
        "libcudart" | "libcublas" | "libcublasLt" => Some(Provider::Runtime),
        _ => None,
    }
}

fn usual_directories(arch: &str) -> Vec<String> {
    let mut directories = vec![
        format!("/lib/{arch}-linux-gnu"),
        format!("/usr/lib/{arch}-linux-gnu"),
    ];
    directories
        .extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(str::to_owned));
    directories
}

/// By the numbers that the ELF registry gives architectures (`e_machine`).
fn runs_on(machine: u16, arch: &str) -> bool {
    match arch {
        "x86_64" => machine == object::elf::EM_X86_64.0,
        "aarch64" => machine == object::elf::EM_AARCH64.0,
        "s390x" => machine == object::elf::EM_S390.0,
        _ => true,
    }
}

/// The regular files below a directory, and links to such within it; deep trees and long lists are cut off.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut waiting = vec![(directory.to_owned(), 0)];
    let mut files = Vec::new();
    while let Some((directory, depth)) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < MAX_DEPTH {
                waiting.push((entry.path(), depth + 1));
            } else if kind.is_file() || kind.is_symlink() && entry.path().is_file() {
                files.push(entry.path());
            }
            if files.len() > MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn shown(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

fn beneath(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

const MAX_DEPTH: usize = 16;
/// An archive of an engine has some hundred files, a Python environment for one some ten thousand.
const MAX_FILES: usize = 200_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// This test's own program, which needs the C library at least.
    fn object(directory: &Path, name: &str) {
        fs::copy(std::env::current_exe().unwrap(), directory.join(name)).unwrap();
    }

    #[test]
    fn a_program_of_this_machine_lacks_nothing() {
        let directory = tempfile::tempdir().unwrap();
        object(directory.path(), "program");
        fs::write(directory.path().join("notes.txt"), "hello").unwrap();
        let findings = look(directory.path(), Path::new("/"), std::env::consts::ARCH).unwrap();
        assert!(findings.missing.is_empty(), "{findings:?}");
        assert!(findings.unusable.is_empty(), "{findings:?}");
        assert_eq!(findings.glibc.unwrap().1, "program");
    }

    #[test]
    fn all_that_is_missing_is_said_with_who_needs_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        object(directory.path(), "program");
        fs::create_dir(directory.path().join("lib")).unwrap();
        object(&directory.path().join("lib"), "other");
        let arch = std::env::consts::ARCH;
        let findings = look(directory.path(), root.path(), arch).unwrap();
        let needed_by = &findings.missing["libc.so.6"];
        let both: Vec<&str> = needed_by.iter().map(String::as_str).collect();
        assert_eq!(both, ["lib/other", "program"]);
        assert!(findings.unusable["program"].contains("loader"));
        // Found by its name in the same directory, as the loader would once it is loaded.
        symlink(
            directory.path().join("program"),
            directory.path().join("libc.so.6"),
        )
        .unwrap();
        let findings = look(directory.path(), root.path(), arch).unwrap();
        assert!(!findings.missing.contains_key("libc.so.6"));
        // Or in one of the usual directories.
        let usual = root.path().join("usr/lib64");
        fs::create_dir_all(&usual).unwrap();
        fs::remove_file(directory.path().join("libc.so.6")).unwrap();
        fs::write(usual.join("libc.so.6"), "").unwrap();
        let findings = look(directory.path(), root.path(), arch).unwrap();
        assert!(!findings.missing.contains_key("libc.so.6"));
    }

    #[test]
    fn a_library_is_found_along_the_run_path_of_who_needs_it() {
        let directory = tempfile::tempdir().unwrap();
        let (near, far) = (directory.path().join("near"), directory.path().join("far"));
        fs::create_dir(&near).unwrap();
        fs::create_dir(&far).unwrap();
        fs::write(directory.path().join("none.c"), "").unwrap();
        let made = |args: &[&str]| {
            let made = std::process::Command::new("cc")
                .current_dir(directory.path())
                .args(["-shared", "-nostdlib", "none.c", "-o"])
                .args(args)
                .status();
            assert!(
                made.is_ok_and(|made| made.success()),
                "a C compiler is needed: cc {args:?}"
            );
        };
        made(&["far/libfar.so"]);
        made(&[
            "near/libnear.so",
            "-Wl,--no-as-needed",
            "-Wl,-rpath,$ORIGIN/../far",
            "-Lfar",
            "-lfar",
        ]);
        let root = tempfile::tempdir().unwrap();
        let missing = || {
            let findings = look(&near, root.path(), std::env::consts::ARCH).unwrap();
            findings.missing.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(missing(), [""; 0]);
        fs::remove_file(far.join("libfar.so")).unwrap();
        assert_eq!(missing(), ["libfar.so"]);
        // By the name that another object gives itself, whatever its file is called.
        made(&["near/other.so", "-Wl,-soname,libfar.so"]);
        assert_eq!(missing(), [""; 0]);
    }

    #[test]
    fn an_object_for_another_processor_is_not_usable() {
        let directory = tempfile::tempdir().unwrap();
        object(directory.path(), "program");
        let other = if std::env::consts::ARCH == "x86_64" {
            "aarch64"
        } else {
            "x86_64"
        };
        let findings = look(directory.path(), Path::new("/"), other).unwrap();
        assert_eq!(
            findings.unusable["program"],
            format!("it is not for {other}")
        );
    }

    #[test]
    fn libraries_are_known_by_who_provides_them() {
        assert_eq!(
            provider("libgomp.so.1"),
            Some(Provider::Package {
                deb: &["libgomp1"],
                rpm: "libgomp"
            })
        );
        assert!(matches!(
            provider("libcuda.so.1"),
            Some(Provider::Driver(_))
        ));
        assert_eq!(provider("libcublasLt.so.13"), Some(Provider::Runtime));
        assert_eq!(provider("libsecret-sauce.so.2"), None);
    }
}
