//! Engines: which every node should have, and how far each is.

use std::fmt;

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::{
        admin::EngineView,
        orders::{EngineLifted, EngineRequest},
    },
    cluster::{
        catalog::Model,
        engine::{EngineSource, KNOWN_ENGINES, WantedEngine},
    },
    error::Code,
    id::EngineName,
};

/// Engines: which every node should have, and how far each is.
///
/// # Contract
/// As for [`Catalog`](super::Catalog). What is chosen goes before what the settings say, on every node, at once; what
/// runs stays until the other build is installed, and for good when it never is.
#[async_trait]
pub trait Engines: fmt::Debug + Send + Sync + 'static {
    /// The engines that are wanted and those that nodes tell of, by name.
    async fn engines(&self) -> Result<Vec<EngineView>, ControlError>;

    /// Has every node get this engine so; answers with what they are told.
    ///
    /// MUST refuse what no node could ever have: an engine that is neither known nor described in the settings, and a
    /// version or a variant that is none ([`Code::InvalidRequest`]).
    async fn choose(&self, request: EngineRequest) -> Result<WantedEngine, ControlError>;

    /// Takes the choice back: what the settings say is in force again.
    ///
    /// MUST refuse an engine that was not chosen ([`Code::NotFound`]), and one that models need and the settings don't
    /// name ([`Code::Conflict`]).
    async fn unchoose(&self, name: &EngineName) -> Result<EngineLifted, ControlError>;
}

/// What a request asks for, over what is in force, as [`Engines::choose`] must check it.
///
/// # Errors
/// What `choose` must answer.
pub fn check_choice(
    request: EngineRequest,
    in_force: &[WantedEngine],
) -> Result<WantedEngine, ControlError> {
    let EngineRequest {
        name,
        version,
        source,
        variant,
    } = request;
    let known = in_force.iter().find(|one| one.name == name);
    if known.is_none() && !KNOWN_ENGINES.contains(&name.as_str()) {
        return Err(
            invalid("name", &format!("{name} is not an engine")).with_hint(format!(
                "this release runs {}; describe any other in the settings by its command",
                KNOWN_ENGINES.join(", ")
            )),
        );
    }
    let before = known.map_or(&EngineSource::Auto, |known| &known.source);
    if matches!(before, EngineSource::Custom(_)) {
        return Err(
            invalid("name", &format!("{name} is described in the settings"))
                .with_hint("change its description there"),
        );
    }
    if (&version, &source, &variant) == (&None, &None, &None) {
        return Err(invalid("version", "nothing is chosen")
            .with_hint("name a version, a source or a variant"));
    }
    let is_new_source = source.is_some();
    let source = match source {
        Some(text) => read_source(&text)?,
        None => before.clone(),
    };
    let in_archives = WantedEngine::new(name.clone(), EngineSource::Auto).has_releases();
    if !in_archives && let (Some(_), _) | (_, Some(_)) = (&version, &variant) {
        return Err(
            invalid("version", "it has no meaning here").with_hint(format!(
                "{name} comes as a list of exact versions: name one with source lock:/PATH"
            )),
        );
    }
    if in_archives && matches!(source, EngineSource::Lock(_)) {
        return Err(invalid("source", "it is no Python environment")
            .with_hint("a lock is for vllm and sglang"));
    }
    if !in_archives && matches!(source, EngineSource::Github | EngineSource::Wheel) {
        return Err(invalid("source", &format!("{name} is not published so"))
            .with_hint("use auto, lock:/PATH or path:/PATH"));
    }
    if let (EngineSource::Mirror(_), false, Some(_)) = (&source, is_new_source, &version) {
        return Err(invalid(
            "version",
            "the settings name a mirror, and the files of one version",
        )
        .with_hint("change the version there, with the checksums of its files"));
    }
    for (field, text) in [("version", &version), ("variant", &variant)] {
        if !text.as_deref().is_none_or(is_plain) {
            return Err(invalid(field, &format!("it is no {field}")).with_hint(
                "a version is a tag of a release, such as b10991, or latest; a variant is such as cpu or cuda-13",
            ));
        }
    }
    let keeps_source = known.filter(|known| known.source == source);
    let before = |of: fn(&WantedEngine) -> Option<String>| known.and_then(of);
    Ok(WantedEngine {
        version: version.or_else(|| before(|known| known.version.clone())),
        variant: variant.or_else(|| before(|known| known.variant.clone())),
        allow_missing_digest: known
            .map(|known| known.allow_missing_digest.clone())
            .unwrap_or_default(),
        pool: known.and_then(|known| known.pool.clone()),
        release: keeps_source
            .filter(|_| matches!(source, EngineSource::Mirror(_)))
            .and_then(|known| known.release.clone()),
        ..WantedEngine::new(name, source)
    })
}

/// Refuses to take a choice back that models need, as [`Engines::unchoose`] must; `settings` is what is in force
/// without it.
///
/// # Errors
/// What `unchoose` must answer.
pub fn check_unchoosing<'a>(
    name: &EngineName,
    settings: &[WantedEngine],
    models: impl IntoIterator<Item = &'a Model>,
) -> Result<Option<WantedEngine>, ControlError> {
    let wanted = settings.iter().find(|one| one.name == *name);
    if wanted.is_some() {
        return Ok(wanted.cloned());
    }
    // Who was told of no engine at all places by what nodes say that they have.
    if settings.is_empty() && KNOWN_ENGINES.contains(&name.as_str()) {
        return Ok(None);
    }
    let needs = |model: &&Model| {
        model
            .profiles()
            .iter()
            .any(|profile| profile.engine == *name)
    };
    let users: Vec<&str> = models
        .into_iter()
        .filter(needs)
        .map(|model| model.name().as_str())
        .collect();
    if users.is_empty() {
        return Ok(None);
    }
    let verb = if users.len() == 1 { "needs" } else { "need" };
    let message = format!(
        "{} {verb} {name}, and the settings don't name it",
        users.join(", ")
    );
    Err(ControlError::new(Code::Conflict, message)
        .with_hint("remove those models first, or add the engine to the settings"))
}

/// No choice of this engine stands.
#[must_use]
pub fn not_chosen(name: &EngineName) -> ControlError {
    ControlError::new(Code::NotFound, format!("{name} was not chosen"))
        .with_hint("`llmgw ctl engines` shows what was chosen, and by whom")
}

fn read_source(text: &str) -> Result<EngineSource, ControlError> {
    let path = |path: &str| {
        let is_one = path.starts_with('/') && !path.chars().any(char::is_control);
        is_one.then(|| path.to_owned())
    };
    let source = match text {
        "auto" => Some(EngineSource::Auto),
        "github" => Some(EngineSource::Github),
        "wheel" => Some(EngineSource::Wheel),
        _ => match text.split_once(':') {
            Some(("path", rest)) => path(rest).map(EngineSource::Path),
            Some(("lock", rest)) => path(rest).map(EngineSource::Lock),
            _ => None,
        },
    };
    source.ok_or_else(|| {
        let short: String = text.chars().take(64).collect();
        invalid("source", &format!("{short:?} is no source")).with_hint(
            "use auto, github, wheel, path:/PATH or lock:/PATH; a mirror stands in the settings",
        )
    })
}

/// Whether a text may stand in an address and in a file's name.
fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=MAX_TEXT).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

fn invalid(field: &str, problem: &str) -> ControlError {
    ControlError::new(Code::InvalidRequest, format!("{field}: {problem}"))
}

const MAX_TEXT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: serde_json::Value) -> EngineRequest {
        serde_json::from_value(json).unwrap()
    }

    fn settings() -> Vec<WantedEngine> {
        let wheel = WantedEngine {
            variant: Some("cpu".to_owned()),
            ..WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Wheel)
        };
        vec![wheel]
    }

    #[test]
    fn what_is_not_said_stays_as_the_settings_have_it() {
        let asked = request(serde_json::json!({"name": "llamacpp", "version": "b11000"}));
        let chosen = check_choice(asked, &settings()).unwrap();
        assert_eq!(chosen.version(), "b11000");
        assert_eq!(chosen.source, EngineSource::Wheel);
        assert_eq!(chosen.variant.as_deref(), Some("cpu"));
        let asked = request(serde_json::json!({"name": "vllm", "source": "lock:/etc/v.txt"}));
        let chosen = check_choice(asked, &settings()).unwrap();
        assert_eq!(chosen.source, EngineSource::Lock("/etc/v.txt".to_owned()));
    }

    #[test]
    fn what_no_node_could_ever_have_is_refused_by_its_field() {
        for (json, field) in [
            (serde_json::json!({"name": "llamacpp"}), "version"),
            (serde_json::json!({"name": "frob", "version": "1"}), "name"),
            (
                serde_json::json!({"name": "llamacpp", "version": "../x"}),
                "version",
            ),
            (
                serde_json::json!({"name": "llamacpp", "version": ""}),
                "version",
            ),
            (
                serde_json::json!({"name": "llamacpp", "variant": "a b"}),
                "variant",
            ),
            (
                serde_json::json!({"name": "llamacpp", "source": "floppy"}),
                "source",
            ),
            (
                serde_json::json!({"name": "llamacpp", "source": "path:x"}),
                "source",
            ),
            (
                serde_json::json!({"name": "llamacpp", "source": "lock:/x"}),
                "source",
            ),
            (
                serde_json::json!({"name": "vllm", "version": "0.9"}),
                "version",
            ),
            (
                serde_json::json!({"name": "vllm", "source": "wheel"}),
                "source",
            ),
        ] {
            let error = check_choice(request(json.clone()), &settings()).unwrap_err();
            assert!(
                error.message.starts_with(&format!("{field}: ")),
                "{json}: {error}"
            );
            assert!(error.hint.is_some(), "{json}");
        }
    }

    #[test]
    fn the_files_of_a_mirror_are_of_one_version() {
        let mirror = EngineSource::Mirror("http://mirror:8081".to_owned());
        let settings = [WantedEngine::new("llamacpp".parse().unwrap(), mirror)];
        let asked = request(serde_json::json!({"name": "llamacpp", "version": "b11000"}));
        assert!(check_choice(asked, &settings).is_err());
        let asked = request(
            serde_json::json!({"name": "llamacpp", "version": "b11000", "source": "github"}),
        );
        assert!(check_choice(asked, &settings).is_ok());
    }
}
