//! What the settings say of an engine.
//!
//! ```yaml
//! engines:
//!   llamacpp:
//!     pool: fast               # which nodes should have it; all, when left out
//!     version: b10991          # the one that this release was checked against, when left out
//!     source: github           # auto, github, wheel, mirror, path
//!     variant: cpu             # the one that fits each node, when left out
//!     allow_missing_digest: [llama-b10991-bin-ubuntu-x64.tar.gz]
//! ```

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{
        catalog::DefinitionError,
        engine::{
            DEFAULT_LLAMACPP, EngineSource, KNOWN_ENGINES, WantedEngine,
            custom::{CustomEngineDefinition, MetricsDefinition, ProbeDefinition, StopSignal},
        },
        release::{Release, Resolution},
        variant::BuildName,
        weights::Sha256Digest,
    },
    id::EngineName,
};
use serde::Deserialize;

use super::LLAMACPP;

/// One engine's settings as they are written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineSettings {
    /// Which nodes should have it: those of this pool, or all.
    pool: Option<String>,
    /// Which version.
    version: Option<String>,
    /// Where builds come from.
    source: Option<SourceName>,
    /// Which form.
    variant: Option<String>,
    /// A program that is already on the machine; of an engine in Python, the directory of its environment.
    path: Option<String>,
    /// A list of exact versions with digests, on the machine, that an environment is made from.
    lock: Option<String>,
    /// The file server that nodes fetch from, and nothing else.
    mirror: Option<String>,
    /// What the mirror's files must be.
    #[serde(default)]
    checksums: BTreeMap<String, Sha256Digest>,
    /// Published files that may be used though no digest is listed for them.
    #[serde(default)]
    allow_missing_digest: BTreeSet<String>,
    /// From here on: what describes an engine that this release does not know.
    command: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    health: Option<String>,
    ready: Option<String>,
    identity: Option<String>,
    stop: Option<StopSignal>,
    metrics: Option<MetricsDefinition>,
    probe: Option<ProbeDefinition>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
enum SourceName {
    Auto,
    Github,
    Wheel,
    Mirror,
    Path,
}

/// Why settings of an engine can't be right: which field, what is wrong, what would help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wrong {
    pub field: &'static str,
    pub problem: &'static str,
    pub hint: &'static str,
}

impl EngineSettings {
    /// What nodes are told; `path` is where these settings stand.
    pub(super) fn wanted(
        mut self,
        name: &EngineName,
        path: &str,
    ) -> Result<WantedEngine, DefinitionError> {
        let pool = self.pool.take();
        let wanted = self.wanted_anywhere(name, path)?;
        Ok(WantedEngine { pool, ..wanted })
    }

    fn wanted_anywhere(
        self,
        name: &EngineName,
        path: &str,
    ) -> Result<WantedEngine, DefinitionError> {
        let wrong = |field: &str, problem: &str, hint: &str| DefinitionError {
            field: format!("{path}{field}"),
            problem: problem.to_owned(),
            hint: Some(hint.to_owned()),
        };
        let is_known = KNOWN_ENGINES.contains(&name.as_str());
        if is_known && self.is_described() {
            let hint = "give an engine that you describe a name of its own";
            return Err(wrong("", "this release describes it itself", hint));
        }
        if name.as_str() == LLAMACPP {
            if self.lock.is_some() {
                return Err(wrong(
                    ".lock",
                    "it is no Python environment",
                    "a lock is for vllm and sglang",
                ));
            }
            return self.archived(name.clone()).map_err(
                |Wrong {
                     field,
                     problem,
                     hint,
                 }| wrong(&format!(".{field}"), problem, hint),
            );
        }
        if let Some(field) = self.of_archives() {
            let hint = "it is for llamacpp, whose builds come in archives";
            return Err(wrong(field, "has no meaning here", hint));
        }
        if is_known {
            return self.in_python(name.clone(), wrong);
        }
        if self.path.is_some() || self.lock.is_some() {
            let hint = "describe it by its command";
            return Err(wrong("", "this release does not know it", hint));
        }
        let Some(command) = self.command else {
            return Err(wrong("", "not an engine", &known_engines()));
        };
        let Some(health) = self.health else {
            let hint = "name a path that answers 200 while the engine is healthy, such as /health";
            return Err(wrong(".health", "it is missing", hint));
        };
        let definition = CustomEngineDefinition {
            command,
            env: self.env.unwrap_or_default(),
            health,
            ready: self.ready,
            identity: self.identity,
            stop: self.stop,
            metrics: self.metrics,
            probe: self.probe,
            version: self.version,
        };
        let source = EngineSource::Custom(Box::new(definition.checked(path)?));
        Ok(WantedEngine::new(name.clone(), source))
    }

    fn is_described(&self) -> bool {
        self.command.is_some()
            || self.env.is_some()
            || self.health.is_some()
            || self.ready.is_some()
            || self.identity.is_some()
            || self.stop.is_some()
            || self.metrics.is_some()
            || self.probe.is_some()
    }

    /// A field that only builds in archives have, when there is one.
    fn of_archives(&self) -> Option<&'static str> {
        [
            (".source", self.source.is_some()),
            (".variant", self.variant.is_some()),
            (".mirror", self.mirror.is_some()),
            (".checksums", !self.checksums.is_empty()),
            (
                ".allow_missing_digest",
                !self.allow_missing_digest.is_empty(),
            ),
        ]
        .into_iter()
        .find_map(|(field, given)| given.then_some(field))
    }

    fn in_python(
        self,
        name: EngineName,
        wrong: impl Fn(&str, &str, &str) -> DefinitionError,
    ) -> Result<WantedEngine, DefinitionError> {
        if self.version.is_some() {
            let hint = "name a lock: it says the version of the engine and of all that it needs";
            return Err(wrong(".version", "has no meaning here", hint));
        }
        let source = match (self.path, self.lock) {
            (Some(_), Some(_)) => {
                let hint = "name the one or the other";
                return Err(wrong(".lock", "a path stands beside it", hint));
            }
            (None, Some(lock)) => EngineSource::Lock(lock),
            (Some(path), None) => EngineSource::Path(path),
            (None, None) => EngineSource::Auto,
        };
        Ok(WantedEngine::new(name, source))
    }

    fn archived(self, name: EngineName) -> Result<WantedEngine, Wrong> {
        let source = self.source()?;
        let Self {
            version,
            variant,
            checksums,
            allow_missing_digest,
            ..
        } = self;
        let plain = |text: &String| {
            !text.is_empty()
                && !text.starts_with('.')
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        if !version.iter().all(plain) {
            return Err(Wrong {
                field: "version",
                problem: "is no version",
                hint: "a version is a tag of a release, such as b10991, or latest",
            });
        }
        if !variant.iter().all(plain) {
            return Err(Wrong {
                field: "variant",
                problem: "is no variant",
                hint: "a variant is such as cpu, vulkan, cuda or cuda-13.3",
            });
        }
        let release = match &source {
            EngineSource::Mirror(address) => {
                let tag = version.as_deref().unwrap_or(DEFAULT_LLAMACPP);
                Some(Resolution::Found {
                    release: of_mirror(tag, address, &checksums)?,
                })
            }
            _ if !checksums.is_empty() => {
                return Err(Wrong {
                    field: "checksums",
                    problem: "is for a mirror, and there is none",
                    hint: "a release lists its own digests; name the mirror, or leave checksums out",
                });
            }
            _ => None,
        };
        Ok(WantedEngine {
            version,
            variant,
            allow_missing_digest,
            release,
            ..WantedEngine::new(name, source)
        })
    }

    fn source(&self) -> Result<EngineSource, Wrong> {
        let Self {
            source,
            path,
            mirror,
            ..
        } = self;
        if let (Some(_), Some(_)) = (path, mirror) {
            return Err(Wrong {
                field: "path",
                problem: "stands beside a mirror",
                hint: "name one of them",
            });
        }
        match (source, path, mirror) {
            (None | Some(SourceName::Auto | SourceName::Path), Some(path), _) => {
                Ok(EngineSource::Path(path.clone()))
            }
            // With a mirror nothing else is contacted: there is no way on if it lacks something.
            (None | Some(SourceName::Auto | SourceName::Mirror), _, Some(mirror)) => {
                Ok(EngineSource::Mirror(mirror.clone()))
            }
            (None | Some(SourceName::Auto), None, None) => Ok(EngineSource::Auto),
            (Some(SourceName::Github), None, None) => Ok(EngineSource::Github),
            (Some(SourceName::Wheel), None, None) => Ok(EngineSource::Wheel),
            (Some(SourceName::Path), ..) => Err(Wrong {
                field: "path",
                problem: "is missing",
                hint: "name the absolute path of a llama-server program on the nodes",
            }),
            (Some(SourceName::Mirror), ..) => Err(Wrong {
                field: "mirror",
                problem: "is missing",
                hint: "name the mirror's address, such as http://mirror:8081",
            }),
            (Some(SourceName::Github | SourceName::Wheel), ..) => Err(Wrong {
                field: "source",
                problem: "is another than what stands beside it",
                hint: "leave path and mirror out, or leave source out",
            }),
        }
    }
}

/// The engines that may be named, in a sentence.
pub(super) fn known_engines() -> String {
    let [first, second, third] = KNOWN_ENGINES;
    format!("this release runs {first}, {second} and {third}; describe any other by its command")
}

fn of_mirror(
    tag: &str,
    address: &str,
    checksums: &BTreeMap<String, Sha256Digest>,
) -> Result<Release, Wrong> {
    if !(address.starts_with("http://") || address.starts_with("https://")) {
        return Err(Wrong {
            field: "mirror",
            problem: "is no address",
            hint: "one looks like http://mirror:8081",
        });
    }
    let mut builds = checksums
        .keys()
        .filter(|name| BuildName::parse(name).is_some());
    if builds.next().is_none() {
        return Err(Wrong {
            field: "checksums",
            problem: "names no build, and a mirror's own word is not taken for its files",
            hint: "list each file with its sha256: {llama-b10991-bin-ubuntu-x64.tar.gz: 5f2a…}",
        });
    }
    Ok(Release::of_mirror(tag, address, checksums))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<WantedEngine, DefinitionError> {
        let settings: EngineSettings = serde_saphyr::from_str(yaml).unwrap();
        settings.wanted(&"llamacpp".parse().unwrap(), "")
    }

    #[test]
    fn each_source_is_written_in_one_way_and_the_obvious_may_be_left_out() {
        for (yaml, source) in [
            ("{}", EngineSource::Auto),
            ("{source: auto}", EngineSource::Auto),
            ("{source: github}", EngineSource::Github),
            ("{source: wheel}", EngineSource::Wheel),
            ("{path: /p}", EngineSource::Path("/p".to_owned())),
            (
                "{source: path, path: /p}",
                EngineSource::Path("/p".to_owned()),
            ),
        ] {
            assert_eq!(read(yaml).unwrap().source, source, "{yaml}");
        }
        let wanted =
            read("{version: b11000, variant: cuda-13, allow_missing_digest: [a]}").unwrap();
        assert_eq!(wanted.version(), "b11000");
        assert_eq!(wanted.variant.as_deref(), Some("cuda-13"));
        assert!(wanted.allow_missing_digest.contains("a"));
    }

    #[test]
    fn a_mirror_comes_with_what_its_files_must_be() {
        let digest = "ab".repeat(32);
        let yaml = format!(
            "{{mirror: 'http://mirror:8081', checksums: {{llama-b10991-bin-ubuntu-x64.tar.gz: {digest}}}}}"
        );
        let wanted = read(&yaml).unwrap();
        assert_eq!(
            wanted.source,
            EngineSource::Mirror("http://mirror:8081".to_owned())
        );
        let Some(Resolution::Found { release }) = wanted.release else {
            panic!("{:?}", wanted.release);
        };
        assert!(
            release.assets[0]
                .url
                .starts_with("http://mirror:8081/_llmgw/engines/")
        );
    }

    #[test]
    fn what_can_not_be_right_is_refused_by_its_field() {
        for (yaml, field) in [
            ("{source: path}", "path"),
            ("{source: mirror}", "mirror"),
            ("{source: github, path: /p}", "source"),
            ("{path: /p, mirror: 'http://m'}", "path"),
            ("{mirror: 'http://m'}", "checksums"),
            ("{mirror: m}", "mirror"),
            (
                "{checksums: {a: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'}}",
                "checksums",
            ),
            ("{version: ../x}", "version"),
            ("{variant: 'a b'}", "variant"),
        ] {
            assert_eq!(read(yaml).unwrap_err().field, format!(".{field}"), "{yaml}");
        }
    }
}
