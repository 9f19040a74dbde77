//! What people write in files, YAML or JSON: definitions, fleets.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use llmgw_server::settings::read_yaml;
use serde::de::DeserializeOwned;

use crate::failure::{Cause, Failure};

/// What is said of a document that can't be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The most that is read, in MiB.
    pub(crate) most: u64,
    /// What kind of failure a missing file is.
    pub(crate) missing: Cause,
    /// What helps when there is no such file.
    pub(crate) unreadable: &'static str,
    /// What helps when its content can't be right.
    pub(crate) wrong: &'static str,
}

/// A model's definition, as the admin API takes it.
pub(crate) const DEFINITION: Kind = Kind {
    most: 1,
    missing: Cause::Usage,
    unreadable: "name a file with a definition, or - for standard input; `llmgw ctl add --help` shows one",
    wrong: "`llmgw ctl add --help` shows a definition",
};

/// The cluster's settings.
pub(crate) const SETTINGS: Kind = Kind {
    most: 1,
    missing: Cause::Usage,
    unreadable: "name a file with settings, or - for standard input",
    wrong: "`llmgw ctl settings keys` lists what settings say",
};

/// Reads a text, as it is; `-` is standard input.
pub(crate) fn text(path: &Path, kind: &Kind) -> Result<String, Failure> {
    if path == Path::new("-") {
        return whole("standard input", io::stdin().lock(), kind);
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error, kind))?;
    whole(&name, file, kind)
}

/// Reads a document; `-` is standard input.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, kind: &Kind) -> Result<T, Failure> {
    if path == Path::new("-") {
        return parse("standard input", io::stdin().lock(), kind);
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error, kind))?;
    parse(&name, file, kind)
}

fn whole(name: &str, reader: impl Read, kind: &Kind) -> Result<String, Failure> {
    let most = kind.most << 20;
    let mut bytes = Vec::new();
    reader
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error, kind))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        return Err(Failure::new(
            Cause::Usage,
            format!("{name} is larger than {} MiB", kind.most),
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(Cause::Usage, format!("{name} is not UTF-8 text")))
}

fn parse<T: DeserializeOwned>(name: &str, reader: impl Read, kind: &Kind) -> Result<T, Failure> {
    let wrong = |message: String| Failure::new(Cause::Usage, message).with_hint(kind.wrong);
    let text = whole(name, reader, kind)?;
    if text.trim().is_empty() {
        return Err(wrong(format!("{name} is empty")));
    }
    // A reader of YAML takes JSON too, but neither as much nor as fast; what is wrong it says better.
    if text.trim_start().starts_with('{')
        && let Ok(read) = serde_json::from_str(&text)
    {
        return Ok(read);
    }
    read_yaml(name, &text).map_err(|misread| wrong(misread.to_string()))
}

fn unreadable(name: &str, error: &io::Error, kind: &Kind) -> Failure {
    let cause = match error.kind() {
        io::ErrorKind::NotFound => kind.missing,
        _ => Cause::Usage,
    };
    Failure::new(cause, format!("reading {name}: {error}")).with_hint(kind.unreadable)
}

#[cfg(test)]
mod tests {
    use llmgw_core::cluster::catalog::ModelDefinition;

    use super::*;

    fn definition(text: impl Read) -> Result<ModelDefinition, Failure> {
        parse("a.yaml", text, &DEFINITION)
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = "name: a\nsource: file:/x\nprofiles: [{memory: 1GiB}]\n";
        let json = r#"{"name": "a", "source": "file:/x", "profiles": [{"memory": 1073741824}]}"#;
        let read = |text: &str| definition(text.as_bytes()).unwrap();
        assert_eq!(read(yaml), read(json));
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_place() {
        for (text, expected) in [
            ("", "a.yaml is empty"),
            ("name: a\nnom: b\n", "a.yaml:2:1: unknown field `nom`"),
            ("name: a\n  source: [\n", "a.yaml:2:9: "),
            ("name: a\nsource: [\n", "a.yaml:2:9: "),
            (
                "name: a\nsource: file:/x\nprofiles:\n  - memory: much\n",
                "a.yaml:4:13: \"much\" is not a size",
            ),
            ("name: a\nname: b\n", "a.yaml:2:1: "),
            ("- a\n", "a.yaml:1:1: "),
        ] {
            let failure = definition(text.as_bytes()).unwrap_err();
            let shown = format!("{failure:?}");
            let expected = format!("{expected:?}");
            let expected = expected.trim_matches('"');
            assert!(shown.contains(expected), "{shown} lacks {expected}");
            assert_eq!(failure.cause, Cause::Usage);
        }
    }

    #[test]
    fn only_text_of_a_sane_size_is_read() {
        let large = io::repeat(b' ').take(10 << 20);
        let failure = definition(large).unwrap_err();
        assert!(format!("{failure:?}").contains("larger than 1 MiB"));
        let failure = definition(&[0xff_u8][..]).unwrap_err();
        assert!(format!("{failure:?}").contains("not UTF-8"));
    }
}
