//! Changes to try, from the command line, in the order in which they stand there.

use std::{fmt, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use llmgw_core::{api::whatif::Change, id::ModelName};

use crate::{
    document::{self, Kind},
    failure::Failure,
};

/// The changes that were asked about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Vec<Asked>);

/// One of them; what stands in files is not read yet.
#[derive(Clone, Debug)]
enum Asked {
    Add(PathBuf),
    Edit(PathBuf),
    Other(Change),
}

// === impl Changes ===

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads what stands in files.
    pub(crate) fn read(&self, kind: &Kind) -> Result<Vec<Change>, Failure> {
        let read = |asked: &Asked| match asked {
            Asked::Add(path) => Ok(Change::Add(Box::new(document::read(path, kind)?))),
            Asked::Edit(path) => Ok(Change::Edit(Box::new(document::read(path, kind)?))),
            Asked::Other(change) => Ok(change.clone()),
        };
        self.0.iter().map(read).collect()
    }

    /// A failure that names a change by its place, with what stands on the command line instead:
    /// `changes[1].scale.model: …` is `--scale m=3: model: …`.
    pub(crate) fn in_words(&self, failure: Failure) -> Failure {
        match self.flag_of(&failure.message) {
            Some(words) => failure.with_message(words),
            None => failure,
        }
    }

    fn flag_of(&self, message: &str) -> Option<String> {
        let (index, rest) = message.strip_prefix("changes[")?.split_once(']')?;
        let asked = self.0.get(index.parse::<usize>().ok()?)?;
        let (field, problem) = rest.strip_prefix('.')?.split_once(": ")?;
        // The kind of the change is the flag.
        let within = field
            .split_once('.')
            .map(|(_, within)| format!("{within}: "));
        Some(format!("{asked}: {}{problem}", within.unwrap_or_default()))
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(path) => write!(f, "--add {}", path.display()),
            Self::Edit(path) => write!(f, "--edit {}", path.display()),
            Self::Other(change) => match change {
                Change::Add(model) => write!(f, "--add {}", model.name),
                Change::Edit(model) => write!(f, "--edit {}", model.name),
                Change::Remove(model) => write!(f, "--remove {model}"),
                Change::Scale { model, replicas } => write!(f, "--scale {model}={replicas}"),
                Change::Drain(node) => write!(f, "--drain {node}"),
                Change::Lose(node) => write!(f, "--lose {node}"),
                Change::AddNodes { like, count } => write!(f, "--add-nodes {like}={count}"),
            },
        }
    }
}

impl Args for Changes {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str, value: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name(value)
                .help(help)
                .help_heading("Changes, made in the order in which they stand")
                .action(ArgAction::Append)
        };
        command.args([
            flag("add", "FILE", "A model more, by its definition")
                .value_parser(value_parser!(PathBuf)),
            flag("edit", "FILE", "A model with another definition")
                .value_parser(value_parser!(PathBuf)),
            flag("remove", "NAME", "A model less").value_parser(value_parser!(ModelName)),
            flag("scale", "NAME=N", "A model with another number of replicas").value_parser(scale),
            flag(
                "drain",
                "NODE",
                "A node that is emptied, by its host name or id",
            ),
            flag("lose", "NODE", "A node that fails"),
            flag(
                "add-nodes",
                "NODE=COUNT",
                "Nodes more, each like this one and empty; they are called new-1, new-2, ...",
            )
            .value_parser(add_nodes),
        ])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Changes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut asked: Vec<(usize, Asked)> = Vec::new();
        asked.extend(given(matches, "add", Asked::Add));
        asked.extend(given(matches, "edit", Asked::Edit));
        let mut other = |name, change: fn(String) -> Change| {
            asked.extend(given(matches, name, |node| Asked::Other(change(node))));
        };
        other("drain", Change::Drain);
        other("lose", Change::Lose);
        asked.extend(given(matches, "remove", |model| {
            Asked::Other(Change::Remove(model))
        }));
        asked.extend(given(matches, "scale", Asked::Other));
        asked.extend(given(matches, "add-nodes", Asked::Other));
        asked.sort_by_key(|(at, _)| *at);
        Ok(Self(asked.into_iter().map(|(_, asked)| asked).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of one flag, each with its place on the command line.
fn given<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    flag: &str,
    asked: impl Fn(T) -> Asked,
) -> Vec<(usize, Asked)> {
    let places = matches.indices_of(flag).into_iter().flatten();
    let values = matches.get_many::<T>(flag).into_iter().flatten();
    let values = values.map(|value| asked(value.clone()));
    places.zip(values).collect()
}

fn scale(text: &str) -> Result<Change, String> {
    let (model, replicas) = text
        .rsplit_once('=')
        .ok_or("say how many replicas: NAME=N")?;
    Ok(Change::Scale {
        model: model.parse().map_err(|wrong| format!("{wrong}"))?,
        replicas: replicas
            .parse()
            .map_err(|_| format!("{replicas:?} is no number of replicas"))?,
    })
}

fn add_nodes(text: &str) -> Result<Change, String> {
    let (like, count) = text
        .rsplit_once('=')
        .ok_or("say how many nodes: NODE=COUNT")?;
    Ok(Change::AddNodes {
        like: like.to_owned(),
        count: count
            .parse()
            .map_err(|_| format!("{count:?} is no number of nodes"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Cause;

    fn parsed(arguments: &[&str]) -> Result<Changes, clap::Error> {
        let command = Changes::augment_args(Command::new("plan").no_binary_name(true));
        Changes::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    #[test]
    fn changes_are_in_the_order_in_which_they_stand() {
        let line = "--lose a --add-nodes b=2 --remove m --lose=c --scale m/n:1=3 --drain d --add f.yaml --edit g.yaml";
        let arguments: Vec<&str> = line.split(' ').collect();
        let Changes(asked) = parsed(&arguments).unwrap();
        let shown: Vec<String> = asked
            .iter()
            .map(|asked| match asked {
                Asked::Add(path) => format!("add {}", path.display()),
                Asked::Edit(path) => format!("edit {}", path.display()),
                Asked::Other(change) => serde_json::to_string(change).unwrap(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"{"lose":"a"}"#,
                r#"{"add_nodes":{"like":"b","count":2}}"#,
                r#"{"remove":"m"}"#,
                r#"{"lose":"c"}"#,
                r#"{"scale":{"model":"m/n:1","replicas":3}}"#,
                r#"{"drain":"d"}"#,
                "add f.yaml",
                "edit g.yaml",
            ]
        );
    }

    #[test]
    fn an_error_names_what_stands_on_the_command_line() {
        let changes = parsed(&["--lose=a", "--scale=m=0", "--add=f.yaml"]).unwrap();
        let words = |message: &str| {
            changes
                .in_words(Failure::new(Cause::Usage, message))
                .message
        };
        assert_eq!(
            words("changes[1].scale.replicas: 0 replicas would never run"),
            "--scale m=0: replicas: 0 replicas would never run"
        );
        assert_eq!(
            words("changes[0].lose: no such node"),
            "--lose a: no such node"
        );
        assert_eq!(
            words("changes[2].add.profiles[0].memory: missing"),
            "--add f.yaml: profiles[0].memory: missing"
        );
        // What is not about a change stays as it is.
        for other in ["changes[9].lose: x", "models[0].name: x", "changes[0]"] {
            assert_eq!(words(other), other);
        }
    }

    #[test]
    fn a_change_without_its_number_is_refused() {
        for (flag, says) in [
            ("--scale=m", "NAME=N"),
            ("--scale=m=x", "\"x\" is no number of replicas"),
            ("--scale=a b=1", "\"a b\" is not"),
            ("--add-nodes=box", "NODE=COUNT"),
            ("--add-nodes=box=-1", "\"-1\" is no number of nodes"),
        ] {
            let error = parsed(&[flag]).unwrap_err().to_string();
            assert!(error.contains(says), "{flag}: {error}");
        }
    }
}
