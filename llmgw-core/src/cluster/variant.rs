//! The names of published builds, as llama.cpp's releases write them.
//!
//! ```text
//! llama-b10991-bin-ubuntu-x64.tar.gz               cpu: the empty middle
//! llama-b10991-bin-ubuntu-vulkan-x64.tar.gz        vulkan
//! llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz     cuda-13.3
//! cudart-llama-bin-ubuntu-cuda-13.3-x64.tar.gz     the runtime of the one above, and no engine
//! llama-b6000-bin-ubuntu-x64.zip                   an older form
//! ```
//! Other systems' builds, sources and whatever else a release carries are no builds to us.

use std::fmt;

use serde::{Deserialize, Serialize, de};

use super::node::MajorMinor;

/// One form of an engine's version: what it computes on, and with which toolkit.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Variant {
    /// The processor alone.
    Cpu,
    /// Any GPU with a Vulkan driver.
    Vulkan,
    /// NVIDIA's GPUs, by this version of the CUDA toolkit.
    Cuda(MajorMinor),
    /// A form that this release knows by name only, such as `rocm-7.2`.
    Other(String),
}

/// What the name of a published file says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BuildName {
    /// What is inside.
    pub role: Role,
    /// The build's number; runtime archives have none.
    pub number: Option<u64>,
    /// For what.
    pub variant: Variant,
    /// The processor architecture, as Rust names it.
    pub arch: String,
    /// How it is packed.
    pub packing: Packing,
}

/// What a published archive holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The engine's programs and libraries.
    Engine,
    /// The toolkit's libraries that the engine of the same variant needs beside it.
    Runtime,
}

/// How an archive is packed, the preferred form first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Packing {
    /// `.tar.gz`, `.tgz`.
    TarGz,
    /// `.tar.zst`.
    TarZst,
    /// `.zip`.
    Zip,
    /// `.tar`: no release has one, and who packs a build by hand may.
    Tar,
}

/// The number in a tag such as `b10991`: versions of llama.cpp are compared by it, never as text.
#[must_use]
pub fn build_number(tag: &str) -> Option<u64> {
    let digits = tag.strip_prefix('b')?;
    whole(digits)
}

// === impl Variant ===

impl Variant {
    /// Whether an operator who asks for `wish` means this one: `cuda-13.3`, and as well `cuda-13` and `cuda`.
    #[must_use]
    pub fn is_meant_by(&self, wish: &str) -> bool {
        let name = self.to_string();
        name == wish
            || name
                .strip_prefix(wish)
                .is_some_and(|rest| rest.starts_with(['-', '.']))
    }

    /// Whether it computes on GPUs.
    #[must_use]
    pub fn needs_gpu(&self) -> bool {
        !matches!(self, Self::Cpu)
    }

    /// The version of the GNU C library that published builds of this form are known to need, where that is
    /// more than systems of 2022 have.
    ///
    /// The numbers are from reports of users: builds for arm64, for ROCm and for CUDA 13 are made on
    /// Ubuntu 24.04 and ask for `GLIBC_2.38`. What is not known is absent: then the objects themselves tell,
    /// once they are here.
    #[must_use]
    pub fn known_glibc(&self, arch: &str) -> Option<MajorMinor> {
        let newer = match self {
            Self::Cuda(version) => version.major >= 13,
            Self::Other(name) => name.starts_with("rocm"),
            Self::Cpu | Self::Vulkan => false,
        };
        (newer || arch == "aarch64").then_some(MajorMinor::new(2, 38))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Vulkan => f.write_str("vulkan"),
            Self::Cuda(version) => write!(f, "cuda-{version}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl From<&str> for Variant {
    fn from(text: &str) -> Self {
        match text {
            "" | "cpu" => Self::Cpu,
            "vulkan" => Self::Vulkan,
            _ => text
                .strip_prefix("cuda-")
                // An older form: cuda-cu12.4.
                .map(|version| version.strip_prefix("cu").unwrap_or(version))
                .and_then(MajorMinor::leading)
                .map_or_else(|| Self::Other(text.to_owned()), Self::Cuda),
        }
    }
}

impl Serialize for Variant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Variant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if is_plain(&text) {
            Ok(Self::from(text.as_str()))
        } else {
            Err(de::Error::custom("not the name of a build"))
        }
    }
}

// === impl BuildName ===

impl BuildName {
    /// Reads the name of a published file; `None` when it is no build for Linux.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if !is_plain(name) {
            return None;
        }
        let (stem, packing) = PACKINGS
            .iter()
            .find_map(|(end, packing)| Some((name.strip_suffix(end)?, *packing)))?;
        let (role, rest) = match stem.strip_prefix("cudart-") {
            Some(rest) => (Role::Runtime, rest),
            None => (Role::Engine, stem),
        };
        let rest = rest.strip_prefix("llama-")?;
        let (number, rest) = match rest.strip_prefix("bin-") {
            Some(rest) => (None, rest),
            None => {
                let (tag, rest) = rest.split_once("-bin-")?;
                (Some(build_number(tag)?), rest)
            }
        };
        if role == Role::Engine && number.is_none() {
            return None;
        }
        let rest = rest.strip_prefix("ubuntu-")?;
        let (variant, arch) = rest.rsplit_once('-').unwrap_or(("", rest));
        let arch = match arch {
            "x64" | "x86_64" => "x86_64",
            "arm64" | "aarch64" => "aarch64",
            "s390x" => "s390x",
            _ => return None,
        };
        Some(Self {
            role,
            number,
            variant: Variant::from(variant),
            arch: arch.to_owned(),
            packing,
        })
    }
}

/// The characters of published names: a name becomes a file's, so that nothing else is let in.
fn is_plain(text: &str) -> bool {
    text.len() <= MAX_NAME
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

fn whole(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

const PACKINGS: &[(&str, Packing)] = &[
    (".tar.gz", Packing::TarGz),
    (".tgz", Packing::TarGz),
    (".tar.zst", Packing::TarZst),
    (".zip", Packing::Zip),
    (".tar", Packing::Tar),
];

const MAX_NAME: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Option<(Role, Option<u64>, String, String)> {
        let BuildName {
            role,
            number,
            variant,
            arch,
            packing: _,
        } = BuildName::parse(name)?;
        Some((role, number, variant.to_string(), arch))
    }

    #[test]
    fn published_names_say_role_number_variant_and_processor() {
        let engine = |variant: &str, arch: &str| {
            Some((
                Role::Engine,
                Some(10_991),
                variant.to_owned(),
                arch.to_owned(),
            ))
        };
        for (name, expected) in [
            (
                "llama-b10991-bin-ubuntu-x64.tar.gz",
                engine("cpu", "x86_64"),
            ),
            ("llama-b10991-bin-ubuntu-x64.zip", engine("cpu", "x86_64")),
            (
                "llama-b10991-bin-ubuntu-arm64.tar.gz",
                engine("cpu", "aarch64"),
            ),
            (
                "llama-b10991-bin-ubuntu-vulkan-x64.tar.gz",
                engine("vulkan", "x86_64"),
            ),
            (
                "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz",
                engine("cuda-13.3", "x86_64"),
            ),
            (
                "llama-b10991-bin-ubuntu-rocm-7.2-x64.tar.gz",
                engine("rocm-7.2", "x86_64"),
            ),
            (
                "cudart-llama-bin-ubuntu-cuda-13.3-x64.tar.gz",
                Some((
                    Role::Runtime,
                    None,
                    "cuda-13.3".to_owned(),
                    "x86_64".to_owned(),
                )),
            ),
        ] {
            assert_eq!(read(name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_build_for_linux_is_passed_over() {
        for name in [
            "llama-b10991-bin-macos-arm64.tar.gz",
            "llama-b10991-bin-win-cuda-13.3-x64.zip",
            "llama-b10991-xcframework.zip",
            "llama-b10991-bin-ubuntu-riscv64.tar.gz",
            "llama-bin-ubuntu-x64.tar.gz",
            "llama-bnew-bin-ubuntu-x64.tar.gz",
            "../llama-b1-bin-ubuntu-x64.tar.gz",
            "llama-b1-bin-ubuntu-x64.tar.gz\n",
            "source.tar.gz",
            "",
        ] {
            assert_eq!(read(name), None, "{name:?}");
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert!(build_number("b10991") > build_number("b9999"));
        for wrong in ["", "b", "13", "b-1", "b1x"] {
            assert_eq!(build_number(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_selector_means_all_that_it_begins() {
        let cuda = Variant::from("cuda-13.3");
        assert!(
            ["cuda", "cuda-13", "cuda-13.3"]
                .iter()
                .all(|wish| cuda.is_meant_by(wish))
        );
        assert!(
            ["cud", "cuda-1", "cuda-13.30", "cpu"]
                .iter()
                .all(|wish| !cuda.is_meant_by(wish))
        );
    }
}
