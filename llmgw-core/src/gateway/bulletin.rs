//! What a call that waits for a model on demand waits for, for whoever tells its client.

use std::fmt::Write;

use tokio::sync::watch;

use crate::{
    reason::remedy,
    route::{ModelRoute, Progress},
};

/// Where it is written. Nothing stands there while the call waits for no model; nowhere when nobody reads it.
#[derive(Debug, Default)]
pub(super) struct Bulletin(Option<watch::Sender<Option<String>>>);

/// Where it is read.
pub(super) type Told = watch::Receiver<Option<String>>;

// === impl Bulletin ===

impl Bulletin {
    pub(super) fn new() -> (Self, Told) {
        let (bulletin, told) = watch::channel(None);
        (Self(Some(bulletin)), told)
    }

    /// The call waits for this model, which is in this state.
    pub(super) fn waits(&self, route: &ModelRoute, state: &str) {
        self.say(|| waits(route, state));
    }

    /// The model is there.
    pub(super) fn served(&self, route: &ModelRoute) {
        self.say(|| format!("{} is ready: waiting for its answer", route.name));
    }

    fn say(&self, words: impl FnOnce() -> String) {
        // Nobody may be told until something stands here, and nobody may read it.
        if let Self(Some(bulletin)) = self {
            bulletin.send_replace(Some(words()));
        }
    }
}

/// In one line: `waiting for smol: fetching weights, 43 %, ~12 s`.
fn waits(route: &ModelRoute, state: &str) -> String {
    let name = route.name.as_str();
    let Progress {
        doing,
        percent,
        eta,
    } = &route.progress;
    let mut line = format!("waiting for {name}: ");
    match doing {
        Some(doing) => line.push_str(doing),
        // The state names the model too, for where nothing else does.
        None => line.push_str(state.strip_prefix(name).unwrap_or(state).trim_start()),
    }
    // Writing to a text does not fail.
    if let Some(percent) = percent {
        write!(line, ", {percent} %").unwrap_or_default();
    }
    if let Some(eta) = eta {
        let seconds = eta.as_secs() + u64::from(eta.subsec_nanos() > 0);
        write!(line, ", ~{}", remedy::span(seconds)).unwrap_or_default();
    }
    // A comment is one line, and not a long one.
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    line.chars().take(LONGEST).map(plain).collect()
}

const LONGEST: usize = 300;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{clock::Timestamp, route::Waiting};

    fn route(progress: Progress) -> ModelRoute {
        ModelRoute {
            name: "smol".parse().unwrap(),
            aliases: Vec::new(),
            created_at: Timestamp(0),
            endpoints: Vec::new(),
            on_demand: true,
            waiting: Waiting::Loading(String::new()),
            progress,
            fallbacks: Vec::new(),
        }
    }

    #[test]
    fn what_is_known_is_said_in_one_line() {
        let known = route(Progress {
            doing: Some("fetching weights".into()),
            percent: Some(43),
            eta: Some(Duration::from_millis(11_500)),
        });
        let expected = "waiting for smol: fetching weights, 43 %, ~12 s";
        assert_eq!(waits(&known, "smol is fetching"), expected);
        let unknown = route(Progress::default());
        let expected = "waiting for smol: is not running: a call starts it";
        assert_eq!(
            waits(&unknown, "smol is not running: a call starts it"),
            expected
        );
        let long = waits(&unknown, &"a\r\n\n: b\0".repeat(100));
        assert!(long.chars().count() <= LONGEST && !long.contains(char::is_control));
    }
}
