//! What is ordered, seen from what it is about.

use llmgw_core::cluster::{engine::WantedEngine, release::Resolution};

/// The engines that are wanted, each with what was found out about the very version and source.
///
/// What was found out about others says whether anybody looks releases up: then nodes wait for the answer, and else they
/// look themselves.
pub(crate) fn with_releases(wanted: &[WantedEngine], told: &[WantedEngine]) -> Vec<WantedEngine> {
    let looks = told
        .iter()
        .any(|one| one.comes_from_releases() && one.release.is_some());
    let with_release = |one: &WantedEngine| {
        let found = one.release_in(told);
        let asking = (looks && one.comes_from_releases()).then_some(Resolution::Asking);
        let release = found.or(asking);
        WantedEngine {
            release,
            ..one.clone()
        }
    };
    wanted.iter().map(with_release).collect()
}

#[cfg(test)]
mod tests {
    use llmgw_core::cluster::engine::EngineSource;

    use super::*;

    fn engine(version: &str, release: Option<Resolution>) -> WantedEngine {
        WantedEngine {
            version: Some(version.to_owned()),
            release,
            ..WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto)
        }
    }

    fn failed() -> Resolution {
        Resolution::Failed {
            error: "no such release".to_owned(),
            hint: None,
        }
    }

    #[test]
    fn what_was_found_of_one_version_is_not_told_of_another() {
        let told = [engine("b1", Some(failed()))];
        let wanted = [engine("b1", None)];
        assert_eq!(with_releases(&wanted, &told)[0].release, Some(failed()));
        let wanted = [engine("b2", None)];
        let release = with_releases(&wanted, &told)[0].release.clone();
        assert_eq!(release, Some(Resolution::Asking));
    }

    #[test]
    fn nodes_look_themselves_where_nobody_looks_for_them() {
        let told = [engine("b1", None)];
        let wanted = [engine("b2", None)];
        assert_eq!(with_releases(&wanted, &told)[0].release, None);
    }
}
