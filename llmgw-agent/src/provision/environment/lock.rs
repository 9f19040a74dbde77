//! Exact versions with digests, in the format of `pip`'s requirements.

use std::path::PathBuf;

use llmgw_bundle::digest::digest;
use llmgw_core::{
    error::{Code, Coded},
    id::EngineName,
    units::Bytes,
};

/// A list of exact versions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lock {
    /// The list itself.
    pub(super) text: String,
    /// The packages, in its order.
    pub(super) packages: Vec<Pin>,
    /// The minor version of Python 3 that it is for; any when its head does not say.
    pub(super) python: Option<u32>,
    /// The oldest C library that its packages accept.
    pub(super) glibc: Option<(u32, u32)>,
    /// What its packages weigh; absent when its head does not say.
    pub(super) download: Option<Bytes>,
}

/// One package.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pin {
    pub(super) name: String,
    pub(super) version: String,
    /// Whether it stands under a condition, so that it may be left out.
    pub(super) conditional: bool,
}

/// Why a list of versions can't be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// It can't be read.
    #[error("the lock {}: {problem}", path.display())]
    Unreadable {
        /// Where it should be.
        path: PathBuf,
        /// What the operating system said.
        problem: String,
    },
    /// A line of it is not what it should be.
    #[error("the lock, line {line}: {problem}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// It does not have the engine.
    #[error("the lock does not pin {engine}")]
    NoEngine {
        /// The engine.
        engine: EngineName,
    },
    /// None is shipped for such a machine.
    #[error("no lock of {engine} is shipped for Python {python} on {architecture}")]
    NotShipped {
        /// The engine.
        engine: EngineName,
        /// The versions of Python that there are.
        python: String,
        /// The processor's architecture.
        architecture: String,
    },
    /// Its packages need a newer C library than the machine's.
    #[error("the packages of {engine} need glibc {}.{}, and this machine has {}.{}", need.0, need.1, have.0, have.1)]
    Glibc {
        /// The engine.
        engine: EngineName,
        /// The oldest that will do.
        need: (u32, u32),
        /// The machine's.
        have: (u32, u32),
    },
}

// === impl Lock ===

impl Lock {
    /// Reads a list.
    ///
    /// # Errors
    /// With the first line that pins no exact version with a digest: names of indexes, options, addresses and
    /// ranges are refused, for what is installed must be what is written.
    pub(super) fn parse(text: &str) -> Result<Self, LockError> {
        let mut lock = Self {
            text: text.to_owned(),
            packages: Vec::new(),
            python: None,
            glibc: None,
            download: None,
        };
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                lock.head(comment.trim());
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let mut whole = line.to_owned();
            while let Some(open) = whole.strip_suffix('\\') {
                let mut joined = open.to_owned();
                if let Some((_, next)) = lines.next() {
                    joined.push(' ');
                    joined.push_str(next.trim());
                }
                whole = joined;
            }
            let pin = pin(&whole).map_err(|problem| LockError::Line {
                line: index + 1,
                problem,
            })?;
            if lock.packages.len() == MOST_PACKAGES {
                let problem = format!("more than {MOST_PACKAGES} packages");
                return Err(LockError::Line {
                    line: index + 1,
                    problem,
                });
            }
            lock.packages.push(pin);
        }
        Ok(lock)
    }

    /// The version of a package, when it is pinned.
    pub(super) fn version_of(&self, name: &str) -> Option<&str> {
        let found = self.packages.iter().find(|pin| pin.name == name)?;
        Some(&found.version)
    }

    /// Whether its packages compute on NVIDIA's GPUs, and need their driver.
    pub(super) fn is_for_nvidia(&self) -> bool {
        self.packages
            .iter()
            .any(|pin| pin.name.starts_with("nvidia-") || pin.name == "cuda-toolkit")
    }

    /// Tells it from every other list.
    pub(super) fn digest(&self) -> String {
        // What is in memory can always be read.
        let digest = digest(self.text.as_bytes()).map(|digested| digested.sha256.to_string());
        digest.unwrap_or_default().chars().take(12).collect()
    }

    /// What the installed packages take on the disk: unpacked, vLLM 0.33.0 has 2.19 times its wheels.
    pub(super) fn unpacked(&self) -> Option<Bytes> {
        let Bytes(download) = self.download?;
        Some(Bytes(download.saturating_mul(9) / 4))
    }

    fn head(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(": ") else {
            return;
        };
        match key {
            "python" => self.python = version_pair(value).map(|(_, minor)| minor),
            "glibc" => self.glibc = version_pair(value),
            "download" => self.download = value.trim().parse().ok().map(Bytes),
            _ => {}
        }
    }
}

/// Reads `name==version ; condition --hash=sha256:…`.
fn pin(line: &str) -> Result<Pin, String> {
    let shown: String = line.chars().take(60).collect();
    if line.starts_with('-') {
        return Err(format!(
            "{shown:?} is an option; indexes are configured for pip or uv on the node"
        ));
    }
    let Some((requirement, digests)) = line.split_once("--hash=") else {
        return Err(format!("{shown:?} has no --hash=sha256:…"));
    };
    for digest in digests.split("--hash=") {
        let digits = digest.trim().strip_prefix("sha256:").unwrap_or_default();
        if digits.len() != 64 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(format!("{shown:?} has a digest that is no sha256"));
        }
    }
    let (exact, conditional) = match requirement.split_once(';') {
        Some((exact, _)) => (exact, true),
        None => (requirement, false),
    };
    let Some((name, version)) = exact.trim().split_once("==") else {
        return Err(format!("{shown:?} is not name==version"));
    };
    // What is installed of a package with extras is the package.
    let name = name.split('[').next().unwrap_or(name).trim();
    let plain = |text: &str, more: &str| {
        !text.is_empty()
            && text.len() <= 100
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if !plain(name, "-_.") || !plain(version, "._+!-") {
        return Err(format!("{shown:?} is not name==version"));
    }
    Ok(Pin {
        name: canonical(name),
        version: version.to_owned(),
        conditional,
    })
}

/// A package's one name (PEP 503).
fn canonical(name: &str) -> String {
    let mut canonical = String::new();
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !canonical.is_empty() {
            canonical.push('-');
        }
        canonical.push_str(&part.to_ascii_lowercase());
    }
    canonical
}

/// Reads `3.12`.
pub(super) fn version_pair(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The lock that ships with this agent.
pub(super) fn shipped(engine: &str, minor: u32, architecture: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .find(|(name, python, arch, _)| {
            *name == engine && *python == minor && *arch == architecture
        })
        .map(|(_, _, _, text)| *text)
}

impl Coded for LockError {
    fn code(&self) -> Code {
        match self {
            Self::Unreadable { .. } => Code::NotFound,
            Self::Line { .. }
            | Self::NoEngine { .. }
            | Self::NotShipped { .. }
            | Self::Glibc { .. } => Code::InvalidRequest,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unreadable { .. } => {
                "name a file that is on the node and that the agent may read"
            }
            Self::Line { .. } | Self::NoEngine { .. } => {
                "make one with: uv pip compile --generate-hashes engine.in"
            }
            Self::NotShipped { .. } => {
                "install a Python of 3.11 or 3.12 (Debian, Ubuntu: apt install python3), or name a lock of your own"
            }
            Self::Glibc { .. } => {
                "run it on a newer distribution, or name a lock of packages that are built for this one"
            }
        };
        Some(hint.to_owned())
    }
}

/// Engines have some two hundred.
const MOST_PACKAGES: usize = 2_000;
/// By engine, minor version of Python, and architecture; made by `make_locks.py` beside them.
const SHIPPED: [(&str, u32, &str, &str); 10] = [
    (
        "vllm",
        11,
        "x86_64",
        include_str!("locks/vllm-3.11-x86_64.txt"),
    ),
    (
        "vllm",
        11,
        "aarch64",
        include_str!("locks/vllm-3.11-aarch64.txt"),
    ),
    (
        "vllm",
        12,
        "x86_64",
        include_str!("locks/vllm-3.12-x86_64.txt"),
    ),
    (
        "vllm",
        12,
        "aarch64",
        include_str!("locks/vllm-3.12-aarch64.txt"),
    ),
    (
        "vllm",
        13,
        "x86_64",
        include_str!("locks/vllm-3.13-x86_64.txt"),
    ),
    (
        "vllm",
        13,
        "aarch64",
        include_str!("locks/vllm-3.13-aarch64.txt"),
    ),
    (
        "sglang",
        11,
        "x86_64",
        include_str!("locks/sglang-3.11-x86_64.txt"),
    ),
    (
        "sglang",
        11,
        "aarch64",
        include_str!("locks/sglang-3.11-aarch64.txt"),
    ),
    (
        "sglang",
        12,
        "x86_64",
        include_str!("locks/sglang-3.12-x86_64.txt"),
    ),
    (
        "sglang",
        12,
        "aarch64",
        include_str!("locks/sglang-3.12-aarch64.txt"),
    ),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest() -> String {
        format!("--hash=sha256:{}", "a".repeat(64))
    }

    #[test]
    fn every_shipped_lock_is_for_the_target_that_the_code_says() {
        for (engine, minor, architecture, text) in SHIPPED {
            let lock = Lock::parse(text).unwrap();
            let said = (lock.python, lock.glibc);
            assert_eq!(said, (Some(minor), Some((2, 34))), "{engine}");
            assert!(text.contains(&format!("\n# architecture: {architecture}\n")));
            assert!(lock.version_of(engine).is_some() && lock.version_of("torch").is_some());
            assert!(lock.is_for_nvidia() && lock.packages.len() > 150);
            assert!(lock.download.unwrap() > Bytes::gib(3));
            assert!(lock.packages.iter().all(|pin| !pin.conditional));
            assert!(
                !text.contains("://"),
                "{engine} names where its wheels come from"
            );
        }
    }

    #[test]
    fn a_list_of_an_operator_s_own_is_read_as_uv_writes_it() {
        let text = format!(
            "# by uv\nTorch_Audio[x]==2.1 \\\n    {digest} \\\n    {digest}\n    # via vllm\n\nvllm==1.0 ; \
             python_version >= '3.11' \\\n    {digest}\n",
            digest = digest()
        );
        let lock = Lock::parse(&text).unwrap();
        let pins: Vec<_> = lock
            .packages
            .iter()
            .map(|pin| (pin.name.as_str(), pin.version.as_str(), pin.conditional))
            .collect();
        assert_eq!(pins, [("torch-audio", "2.1", false), ("vllm", "1.0", true)]);
        assert_eq!((lock.python, lock.download), (None, None));
        assert!(!lock.is_for_nvidia());
        assert_ne!(lock.digest(), Lock::parse("").unwrap().digest());
    }

    #[test]
    fn a_line_that_is_no_exact_version_with_a_digest_is_refused() {
        let digest = digest();
        for (line, says) in [
            ("--index-url https://x/simple".to_owned(), "is an option"),
            ("vllm==1.0".to_owned(), "has no --hash"),
            (format!("vllm>=1.0 {digest}"), "is not name==version"),
            (
                format!("vllm @ https://x/y.whl {digest}"),
                "is not name==version",
            ),
            (format!("==1 {digest}"), "is not name==version"),
            ("vllm==1.0 --hash=md5:00".to_owned(), "is no sha256"),
        ] {
            let error = Lock::parse(&format!("\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("the lock, line 2: "), "{error}");
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(a==1|--hash=sha256:|\\\\|\n|;|#|: |[a-z0-9 ]){0,30}") {
            Lock::parse(&text).ok();
        }
    }
}
