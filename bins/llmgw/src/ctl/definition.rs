//! A model's definition, from a file or standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use llmgw_core::cluster::catalog::ModelDefinition;
use llmgw_server::settings::read_yaml;

use crate::failure::{Cause, Failure};

/// Reads a definition, YAML or JSON; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<ModelDefinition, Failure> {
    if path == Path::new("-") {
        return parse("standard input", io::stdin().lock());
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    parse(&name, file)
}

fn parse(name: &str, reader: impl Read) -> Result<ModelDefinition, Failure> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_DEFINITION + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_DEFINITION) {
        return Err(Failure::new(
            Cause::Usage,
            format!("{name} is larger than 1 MiB"),
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(Cause::Usage, format!("{name} is not UTF-8 text")))?;
    if text.trim().is_empty() {
        return Err(wrong(format!("{name} is empty")));
    }
    read_yaml(name, &text).map_err(|misread| wrong(misread.to_string()))
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(Cause::Usage, format!("reading {name}: {error}")).with_hint(
        "name a file with a definition, or - for standard input; `llmgw ctl add --help` shows one",
    )
}

fn wrong(message: String) -> Failure {
    Failure::new(Cause::Usage, message).with_hint("`llmgw ctl add --help` shows a definition")
}

/// What the admin API takes.
const MAX_DEFINITION: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = "name: a\nsource: file:/x\nprofiles: [{memory: 1GiB}]\n";
        let json = r#"{"name": "a", "source": "file:/x", "profiles": [{"memory": 1073741824}]}"#;
        let read = |text: &str| parse("a.yaml", text.as_bytes()).unwrap();
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
            let failure = parse("a.yaml", text.as_bytes()).unwrap_err();
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
        let failure = parse("a.yaml", large).unwrap_err();
        assert!(format!("{failure:?}").contains("larger than 1 MiB"));
        let failure = parse("a.yaml", &[0xff_u8][..]).unwrap_err();
        assert!(format!("{failure:?}").contains("not UTF-8"));
    }
}
