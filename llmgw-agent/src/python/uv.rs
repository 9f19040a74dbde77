//! `uv`: the machine's own when it is new enough, else the package, in an environment of its own.
//!
//! `uv` does not read how `pip` is configured on a machine. Where it has no configuration of its own, it is told
//! what `pip` is told: the indexes, wheels in directories, certificates, proxies. None of it is written down here.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_core::error::{Code, Coded};

use self::{failure::failure, settings::settings};
use super::{
    Python, PythonError, Search, interpreter, make_environment,
    pip::{Package, Pip, PipError},
};
use crate::command::{Helper, HelperError, Inherits, Listener, Patience};

mod failure;
mod settings;

/// A `uv` that works.
#[derive(Clone, Debug)]
pub(crate) struct Uv {
    pub program: PathBuf,
    pub version: UvVersion,
    /// Whether it was on the machine already.
    pub is_own: bool,
    /// What `pip` is told and `uv` would not know.
    settings: Vec<(OsString, OsString)>,
}

/// A version of `uv`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct UvVersion(u32, u32, u32);

/// Where `uv` works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Where it is installed when the machine has none.
    pub directory: &'a Path,
    /// Where it keeps what it has downloaded.
    pub cache: &'a Path,
    /// Marks it as ours.
    pub env: &'a [(OsString, OsString)],
    /// How long it may neither say nor write anything.
    pub silence: Duration,
}

/// Why `uv` can't be had, or did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UvError {
    /// There is no environment to install it into.
    #[error("making an environment for uv")]
    Python(#[from] PythonError),
    /// The package can't be had.
    #[error("getting uv")]
    Pip(#[from] PipError),
    /// What was installed does not run.
    #[error("{} was installed and does not work: {said}", program.display())]
    Broken {
        /// Where it is.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// What came is not what is pinned.
    #[error("the index gives other bytes for {package}: sha256 {got}, not the pinned {expected}")]
    Hash {
        /// Which package, with its version.
        package: String,
        /// What it must be; the first of several.
        expected: String,
        /// What came.
        got: String,
    },
    /// What came can't be unpacked.
    #[error("what the index gives for {package} is damaged: {said}")]
    Damaged {
        /// Which package, with its version.
        package: String,
        /// What `uv` said of it.
        said: String,
    },
    /// The index has no such package for this machine.
    #[error("no build of {package} for this machine is in the index")]
    Missing {
        /// Which package, with its version where it is known.
        package: String,
    },
    /// No index answers.
    #[error("no package index could be reached: {said}")]
    Unreachable {
        /// What `uv` said of it.
        said: String,
    },
    /// The disk is full.
    #[error("the disk is full: {said}")]
    Full {
        /// What `uv` said of it.
        said: String,
    },
    /// Something else.
    #[error("uv failed ({how}): {said}")]
    Failed {
        /// How it ended.
        how: String,
        /// Why, in its own words.
        said: String,
    },
    /// It did not end by itself.
    #[error("running uv")]
    Helper(#[from] HelperError),
    /// A file of it can't be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
}

// === impl Uv ===

impl Uv {
    /// Finds one that is new enough, or installs the package.
    ///
    /// The package is complete when it answers: a directory that an earlier life has left half-made is made again.
    pub(crate) async fn find(
        python: &Python,
        place: &Place<'_>,
        told: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Self, UvError> {
        let settings = settings(python, place).await;
        if let Some(version) = ask(Path::new("uv"), place).await
            && version >= OLDEST
        {
            return Ok(Self {
                program: "uv".into(),
                version,
                is_own: true,
                settings,
            });
        }
        let directory = place.directory.join(format!("uv-{PACKAGE_VERSION}"));
        let environment = directory.join("venv");
        let program = environment.join("bin").join("uv");
        let pinned = UvVersion::parse(PACKAGE_VERSION);
        let found = |version| Self {
            program: program.clone(),
            version,
            is_own: false,
            settings: settings.clone(),
        };
        if let Some(version) = ask(&program, place).await
            && Some(version) == pinned
        {
            return Ok(found(version));
        }
        let package = Package {
            name: "uv".to_owned(),
            version: PACKAGE_VERSION.to_owned(),
        };
        told(format!("getting {package}"));
        match tokio::fs::remove_dir_all(&directory).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", &directory)(error));
            }
            _ => {}
        }
        let scratch = directory.join("tmp");
        tokio::fs::create_dir_all(&scratch)
            .await
            .map_err(failed("making", &scratch))?;
        let search = Search {
            configured: None,
            directory: &directory,
            env: place.env,
        };
        make_environment(python, &environment, &search).await?;
        let requirements = directory.join("requirements.txt");
        tokio::fs::write(&requirements, REQUIREMENTS)
            .await
            .map_err(failed("writing", &requirements))?;
        let pip = Pip {
            python: &interpreter(&environment),
            scratch: &scratch,
            env: place.env,
            silence: place.silence,
        };
        let listener = Listener {
            line: &|_| (),
            filling: Some((&directory, &|_| ())),
        };
        pip.install(&package, &requirements, &listener).await?;
        match ask(&program, place).await {
            Some(version) if Some(version) == pinned => Ok(found(version)),
            _ => Err(UvError::Broken {
                program,
                said: "it does not say the version that was installed".to_owned(),
            }),
        }
    }

    /// Makes an empty environment of this Python.
    pub(crate) async fn make_environment(
        &self,
        python: &Python,
        environment: &Path,
        place: &Place<'_>,
    ) -> Result<(), UvError> {
        let args = [
            "venv".into(),
            "--no-project".into(),
            "--python".into(),
            python.executable.clone().into_os_string(),
            environment.as_os_str().to_owned(),
        ];
        self.run(&args, place, &Listener::NONE).await
    }

    /// Installs what `requirements` pins, and nothing else.
    pub(crate) async fn install(
        &self,
        environment: &Path,
        requirements: &Path,
        place: &Place<'_>,
        listener: &Listener<'_>,
    ) -> Result<(), UvError> {
        let args = [
            "pip".into(),
            "install".into(),
            "--python".into(),
            interpreter(environment).into_os_string(),
            "--require-hashes".into(),
            "--no-deps".into(),
            "--only-binary".into(),
            ":all:".into(),
            // As `pip` does: what an index gives under a name is told by its digest, not by its place in a list.
            "--index-strategy".into(),
            "unsafe-best-match".into(),
            "-r".into(),
            requirements.as_os_str().to_owned(),
        ];
        self.run(&args, place, listener).await
    }

    async fn run(
        &self,
        args: &[OsString],
        place: &Place<'_>,
        listener: &Listener<'_>,
    ) -> Result<(), UvError> {
        let mut env = self.settings.clone();
        env.extend(place.env.iter().cloned());
        env.extend(
            FIXED
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        env.push(("UV_CACHE_DIR".into(), place.cache.into()));
        let helper = Helper {
            program: &self.program,
            args: args.to_vec(),
            env: &env,
            inherits: Inherits::PackageSettings,
            without: ELSEWHERE,
            directory: place.directory,
            patience: Patience::Silence(place.silence),
        };
        let finished = helper.run(listener).await?;
        if finished.status.success() {
            Ok(())
        } else {
            Err(failure(&finished))
        }
    }
}

// === impl UvVersion ===

impl UvVersion {
    /// Reads `0.13.9`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        Some(Self(major, minor, patch))
    }
}

impl std::fmt::Display for UvVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Asks a program for its version; `None` when it is not there, or is no `uv`.
async fn ask(program: &Path, place: &Place<'_>) -> Option<UvVersion> {
    let helper = Helper {
        program,
        args: vec!["--version".into()],
        env: place.env,
        inherits: Inherits::Basics,
        without: &[],
        directory: place.directory,
        patience: Patience::Whole(ANSWER),
    };
    let finished = helper.run(&Listener::NONE).await.ok()?;
    let line = finished.lines.iter().find(|line| line.starts_with("uv "))?;
    let version = line.split_whitespace().nth(1)?;
    UvVersion::parse(version).filter(|_| finished.status.success())
}

fn failed<'p>(doing: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> UvError + use<'p> {
    move |source| UvError::File {
        doing,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

impl Coded for UvError {
    fn code(&self) -> Code {
        match self {
            Self::Python(error) => error.code(),
            Self::Pip(error) => error.code(),
            Self::Hash { .. } | Self::Damaged { .. } => Code::VerificationFailed,
            Self::Missing { .. } => Code::NotFound,
            Self::Broken { .. } | Self::Unreachable { .. } | Self::Failed { .. } => {
                Code::Unavailable
            }
            Self::Helper(_) => Code::UpstreamTimeout,
            Self::Full { .. } | Self::File { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Python(error) => return error.hint(),
            Self::Pip(error) => return error.hint(),
            Self::Broken { .. } => "put a uv that works on this machine on the PATH of the agent",
            Self::Hash { .. } | Self::Damaged { .. } => {
                "the index, or a cache before it, holds another file; don't use it"
            }
            Self::Missing { .. } => "check the index that pip or uv is configured for",
            Self::Unreachable { .. } => "check with: python3 -m pip download uv",
            Self::Full { .. } | Self::File { .. } => "make room on the disk of the data directory",
            Self::Failed { .. } | Self::Helper(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// The first that knows `UV_DEFAULT_INDEX`, and all else that it is told here.
const OLDEST: UvVersion = UvVersion(0, 5, 0);
/// The package that is installed: its lock names the same, with digests.
const PACKAGE_VERSION: &str = "0.13.9";
const REQUIREMENTS: &str = include_str!("uv.txt");
/// Settings that make `uv` a helper and not a companion.
const FIXED: &[(&str, &str)] = &[
    // An interpreter is the machine's own or none: where `uv` would get one is no index of the operator's.
    ("UV_PYTHON_DOWNLOADS", "never"),
    ("UV_NO_PROGRESS", "1"),
    ("UV_NO_COLOR", "1"),
    ("NO_COLOR", "1"),
    // What the cache and an environment both have, the disk has once.
    ("UV_LINK_MODE", "hardlink"),
    ("LC_ALL", "C.UTF-8"),
];
/// Settings that would install something else, or elsewhere.
const ELSEWHERE: &[&str] = &[
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_BREAK_SYSTEM_PACKAGES",
    "UV_CONSTRAINT",
    "UV_BUILD_CONSTRAINT",
    "UV_OVERRIDE",
    "UV_EXCLUDE",
    "UV_EXCLUDE_NEWER",
    "UV_NO_BINARY",
    "UV_NO_CACHE",
    "UV_NO_VERIFY_HASHES",
    "UV_WORKING_DIRECTORY",
    "UV_PROJECT",
];
const ANSWER: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
