//! Which build of an engine a node should have, and what is left to do for it. Pure.

use std::path::{Path, PathBuf};

use llmgw_core::cluster::engine::{EngineSource, WantedEngine, custom::CustomEngine};

use super::{
    ProvisionError,
    environment::{self, Origin},
    wheel::PACKAGE,
};

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    /// As `std::env::consts::ARCH` names it.
    pub architecture: &'a str,
    /// The program that the agent's configuration names for this engine.
    pub configured: Option<&'a Path>,
}

/// A build, and why it is this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Choice {
    pub build: Build,
    /// Says both in one line.
    pub line: String,
}

/// One form of an engine.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Build {
    Program(PathBuf),
    Wheel,
    /// A Python environment of an engine that is one.
    Environment(Origin),
    /// As an operator describes it.
    Custom(Box<CustomEngine>),
}

/// What was found in the directory of a package.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// Something that is not to be used, and why.
    Spoilt(String),
    /// A marker that says the pinned version, and an interpreter.
    Marked,
}

/// One step of an installation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Look for an interpreter, before anything is removed or made.
    FindPython,
    /// Remove what is there.
    Wipe,
    /// Make an environment.
    MakeEnvironment,
    /// Install the pinned package into it.
    InstallPackage,
    /// Write our launcher, unless it is there and ours.
    WriteLauncher,
    /// Import the package through the launcher and compare its version.
    Check,
    /// Bring everything to the disk and write the marker.
    Mark,
}

/// Chooses a build.
pub(super) fn choose(
    wanted: &WantedEngine,
    machine: &Machine<'_>,
) -> Result<Choice, ProvisionError> {
    let WantedEngine { name, source } = wanted;
    if let EngineSource::Custom(engine) = source {
        return Ok(Choice {
            build: Build::Custom(engine.clone()),
            line: format!(
                "{name} as described ({}): it was asked for",
                engine.program()
            ),
        });
    }
    if environment::is_in_python(name) {
        let (origin, line) = environment::choose(name, source, machine.configured);
        return Ok(Choice {
            build: Build::Environment(origin),
            line,
        });
    }
    if crate::engine::engine(name).is_none() {
        return Err(ProvisionError::UnknownEngine {
            engine: name.clone(),
        });
    }
    let (build, why) = match (source, machine.configured) {
        (EngineSource::Path(path), _) => (Build::Program(path.into()), "it was asked for"),
        (EngineSource::Wheel, _) => (Build::Wheel, "it was asked for"),
        (EngineSource::Lock(_) | EngineSource::Custom(_), _) => {
            return Err(ProvisionError::NoEnvironment {
                engine: name.clone(),
            });
        }
        (EngineSource::Auto, Some(path)) => (
            Build::Program(path.to_owned()),
            "the configuration names it",
        ),
        (EngineSource::Auto, None) => (Build::Wheel, "no path is configured"),
    };
    let line = match &build {
        Build::Program(path) => format!("{name} by path ({}): {why}", path.display()),
        _ => format!("{name} by wheel ({}): {why}", PACKAGE.text()),
    };
    if build == Build::Wheel && !PACKAGE.architectures.contains(&machine.architecture) {
        return Err(ProvisionError::Architecture {
            package: PACKAGE.text(),
            architecture: machine.architecture.to_owned(),
        });
    }
    Ok(Choice { build, line })
}

/// What is left to do, in order.
pub(super) fn steps(found: &Found) -> &'static [Step] {
    match found {
        Found::Marked => &[Step::WriteLauncher, Step::Check],
        Found::Nothing | Found::Spoilt(_) => &[
            Step::FindPython,
            Step::Wipe,
            Step::MakeEnvironment,
            Step::InstallPackage,
            Step::WriteLauncher,
            Step::Check,
            Step::Mark,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(source: EngineSource, machine: &Machine<'_>) -> Choice {
        let wanted = WantedEngine {
            name: "llamacpp".parse().unwrap(),
            source,
        };
        choose(&wanted, machine).unwrap()
    }

    const BARE: Machine<'static> = Machine {
        architecture: "x86_64",
        configured: None,
    };

    #[test]
    fn a_configured_path_comes_first_and_the_wheel_without_one() {
        let named = Machine {
            configured: Some(Path::new("/opt/llama-server")),
            ..BARE
        };
        let choice = chosen(EngineSource::Auto, &named);
        assert_eq!(choice.build, Build::Program("/opt/llama-server".into()));
        assert_eq!(
            choice.line,
            "llamacpp by path (/opt/llama-server): the configuration names it"
        );
        let choice = chosen(EngineSource::Auto, &BARE);
        assert_eq!(choice.build, Build::Wheel);
        assert_eq!(
            choice.line,
            "llamacpp by wheel (xllamacpp 2026.10.11549): no path is configured"
        );
        assert_eq!(chosen(EngineSource::Wheel, &named).build, Build::Wheel);
    }

    #[test]
    fn a_path_is_taken_on_any_machine_and_the_wheel_only_where_one_is_built() {
        let other = Machine {
            architecture: "riscv64",
            ..BARE
        };
        let path = EngineSource::Path("/p".to_owned());
        assert_eq!(chosen(path, &other).build, Build::Program("/p".into()));
        let wanted = WantedEngine {
            name: "llamacpp".parse().unwrap(),
            source: EngineSource::Auto,
        };
        let error = choose(&wanted, &other).unwrap_err();
        assert_eq!(
            error.to_string(),
            "xllamacpp 2026.10.11549 is not built for riscv64"
        );
    }

    #[test]
    fn an_engine_that_this_release_does_not_run_is_not_installed() {
        let wanted = WantedEngine {
            name: "mine".parse().unwrap(),
            source: EngineSource::Auto,
        };
        let error = choose(&wanted, &BARE).unwrap_err();
        assert!(matches!(error, ProvisionError::UnknownEngine { .. }));
        let wanted = WantedEngine {
            name: "llamacpp".parse().unwrap(),
            source: EngineSource::Lock("/locks/x.txt".to_owned()),
        };
        let error = choose(&wanted, &BARE).unwrap_err();
        assert_eq!(
            error.to_string(),
            "llamacpp is no Python environment, and has no lock"
        );
    }

    #[test]
    fn engines_in_python_come_as_environments_whatever_the_source() {
        let chosen = |source, configured| {
            let wanted = WantedEngine {
                name: "vllm".parse().unwrap(),
                source,
            };
            let machine = Machine { configured, ..BARE };
            choose(&wanted, &machine).unwrap()
        };
        let shipped = chosen(EngineSource::Auto, None);
        assert_eq!(shipped.build, Build::Environment(Origin::Shipped));
        assert_eq!(
            shipped.line,
            "vllm by environment of the lock that ships with the agent: no other is named"
        );
        let lock = chosen(EngineSource::Lock("/l.txt".to_owned()), None);
        assert_eq!(
            lock.build,
            Build::Environment(Origin::Lock("/l.txt".into()))
        );
        let named = chosen(EngineSource::Auto, Some(Path::new("/opt/venv")));
        assert_eq!(
            named.build,
            Build::Environment(Origin::Existing("/opt/venv".into()))
        );
        let asked = chosen(EngineSource::Path("/opt/other".to_owned()), None);
        assert_eq!(
            asked.line,
            "vllm by the environment at /opt/other: it was asked for"
        );
    }

    #[test]
    fn nothing_is_removed_before_it_can_be_made_again_and_the_marker_is_last() {
        for found in [Found::Nothing, Found::Spoilt("no marker".to_owned())] {
            let steps = steps(&found);
            assert_eq!(steps[..2], [Step::FindPython, Step::Wipe]);
            assert_eq!(steps[steps.len() - 2..], [Step::Check, Step::Mark]);
        }
        assert_eq!(steps(&Found::Marked), [Step::WriteLauncher, Step::Check]);
    }
}
