//! What a definition says of weights, checked.

use std::collections::BTreeSet;

use super::{DefinitionError, OneOrMany, bounded, problem};
use crate::{
    cluster::weights::{
        Sha256Digest, Source, Weights, WeightsFile, gguf_parts, is_relative, split_digest,
    },
    units::Bytes,
};

pub(super) fn checked(
    source: OneOrMany,
    sha256: Option<String>,
    size: Option<Bytes>,
    files: Vec<WeightsFile>,
) -> Result<Weights, DefinitionError> {
    let texts = match source {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    if texts.is_empty() {
        return Err(problem("source", &"there is none", None));
    }
    if texts.len() > MAX_SOURCES {
        return Err(problem("source", &"more than 16 places", None));
    }
    let mut sha256: Option<Sha256Digest> = sha256
        .map(|text| text.parse().map_err(|e| problem("sha256", &e, None)))
        .transpose()?;
    let mut sources = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let field = if texts.len() == 1 {
            "source".to_owned()
        } else {
            format!("source[{index}]")
        };
        let (text, said) = split_digest(text).map_err(|e| problem(&field, &e, None))?;
        let source: Source = text.parse().map_err(|e| problem(&field, &e, None))?;
        sources.push(source);
        // All sources are of the same bytes.
        if let Some(said) = said
            && *sha256.get_or_insert(said) != said
        {
            return Err(problem(
                &field,
                &"its digest is another than what is said before",
                Some("all sources of a model give the same file"),
            ));
        }
    }
    // What a hub says of its file holds for the same file elsewhere.
    let has_hub = sources
        .iter()
        .any(|source| matches!(source, Source::Hub { .. }));
    let unchecked = sources.iter().find(|source| {
        !matches!(source, Source::File { .. }) && !has_hub && sha256.is_none() && files.is_empty()
    });
    if let Some(source) = unchecked {
        return Err(problem(
            "sha256",
            &format!(
                "missing, and {} bytes are not used unchecked",
                source.scheme()
            ),
            Some("give the digest of the file: sha256: <64 hexadecimal digits>"),
        ));
    }
    if sha256.is_some() {
        let parts = sources
            .iter()
            .find_map(|source| gguf_parts(source.file_name()));
        if let Some(parts) = parts {
            return Err(problem(
                "sha256",
                &format!("one digest can't be that of {} parts", parts.len()),
                Some(
                    "leave it out when the source is a hub, else list each part with its digest: files: [{path: …, sha256: …}]",
                ),
            ));
        }
    }
    check_files(&files, sha256.is_some() || size.is_some())?;
    Ok(Weights {
        sources,
        sha256,
        size,
        files,
    })
}

fn check_files(files: &[WeightsFile], has_one_of_all: bool) -> Result<(), DefinitionError> {
    if files.is_empty() {
        return Ok(());
    }
    if has_one_of_all {
        let hint = Some("each file has its own");
        return Err(problem(
            "files",
            &"sha256 or size is given for all as well",
            hint,
        ));
    }
    if files.len() > MAX_FILES {
        return Err(problem(
            "files",
            &format!("{} are more than 2,000", files.len()),
            None,
        ));
    }
    let mut paths = BTreeSet::new();
    for (index, file) in files.iter().enumerate() {
        let field = format!("files[{index}].path");
        if !is_relative(&file.path) || file.path.chars().any(char::is_control) {
            return Err(problem(
                &field,
                &format!("{:?} is no path beside the source", file.path),
                None,
            ));
        }
        if !paths.insert(&file.path) {
            return Err(problem(
                &field,
                &format!("{} is named twice", file.path),
                None,
            ));
        }
        if let Some(size) = file.size {
            bounded(size, &format!("files[{index}].size"))?;
        }
    }
    // A file that is a directory of another can't be laid beside it.
    let beneath = paths.iter().find(|path| {
        let mut above = path.as_str();
        std::iter::from_fn(|| {
            above = above.rsplit_once('/')?.0;
            Some(above.to_owned())
        })
        .any(|above| paths.contains(&above))
    });
    match beneath {
        Some(path) => Err(problem(
            "files",
            &format!("{path} lies beneath another of them"),
            None,
        )),
        None => Ok(()),
    }
}

const MAX_SOURCES: usize = 16;
const MAX_FILES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::{Model, ModelDefinition};

    fn definition(json: &serde_json::Value) -> Result<Model, DefinitionError> {
        let definition: ModelDefinition = serde_json::from_value(json.clone()).unwrap();
        Model::try_from(definition)
    }

    fn digest(digit: &str) -> String {
        digit.repeat(64)
    }

    #[test]
    fn a_hubs_file_needs_neither_digest_nor_memory_and_others_do() {
        let open = serde_json::json!({"name": "a", "source": "hf:o/r/m.gguf", "profiles": [{}]});
        let model = definition(&open).unwrap();
        assert!(!model.is_complete());
        let json = serde_json::to_value(&model).unwrap();
        assert!(json["profiles"][0].get("memory").is_none(), "{json}");
        assert_eq!(serde_json::from_value::<Model>(json).unwrap(), model);
        for (source, says) in [
            ("https://host/m.gguf", "sha256: missing"),
            ("mirror:m.gguf", "sha256: missing"),
            ("pip:p==1/m.gguf", "sha256: missing"),
        ] {
            let mut other = open.clone();
            other["source"] = source.into();
            let error = definition(&other).unwrap_err().to_string();
            assert!(error.starts_with(says), "{source}: {error}");
        }
        let mut package = open.clone();
        package["source"] = format!("pip:p==1/m.gguf#sha256={}", digest("a")).into();
        let error = definition(&package).unwrap_err().to_string();
        assert!(error.starts_with("profiles[0].memory: missing"), "{error}");
        // A node that holds the file tells what it needs.
        let mut here = open.clone();
        here["source"] = "file:/m.gguf".into();
        assert!(!definition(&here).unwrap().is_complete());
        // What the hub says holds for the same file elsewhere.
        let mut both = open;
        both["source"] = serde_json::json!(["https://host/m.gguf", "hf:o/r/m.gguf"]);
        definition(&both).unwrap();
    }

    #[test]
    fn files_that_can_not_lie_beside_each_other_are_refused() {
        let with = |files: serde_json::Value| {
            definition(&serde_json::json!({
                "name": "a", "source": "https://host/d/m-00001-of-00002.gguf", "files": files,
                "profiles": [{"memory": "1GiB"}],
            }))
        };
        let file =
            |path: &str| serde_json::json!({"path": path, "sha256": digest("a"), "size": "1GiB"});
        let model = with(serde_json::json!([
            file("m-00001-of-00002.gguf"),
            file("m-00002-of-00002.gguf")
        ]));
        assert_eq!(model.unwrap().weights().total(), Some(Bytes::gib(2)));
        for (files, says) in [
            (serde_json::json!([file("../x")]), "files[0].path: "),
            (serde_json::json!([file("/x")]), "files[0].path: "),
            (
                serde_json::json!([file("x"), file("x")]),
                "files[1].path: x is named twice",
            ),
            (
                serde_json::json!([file("x"), file("x/y")]),
                "files: x/y lies beneath",
            ),
        ] {
            let error = with(files).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        let one = serde_json::json!({
            "name": "a", "source": "hf:o/r/m-00001-of-00002.gguf", "sha256": digest("a"),
            "profiles": [{"memory": "1GiB"}],
        });
        let error = definition(&one).unwrap_err().to_string();
        assert!(error.contains("that of 2 parts"), "{error}");
    }

    #[test]
    fn a_digest_may_stand_behind_its_source() {
        let a = digest("a");
        let model = |source: serde_json::Value| -> Result<Model, String> {
            let definition = serde_json::json!({
                "name": "a", "source": source, "profiles": [{"memory": "1GiB"}],
            });
            let definition: ModelDefinition = serde_json::from_value(definition).unwrap();
            Model::try_from(definition).map_err(|error| error.to_string())
        };
        let web = format!("https://host/m.gguf#sha256={a}");
        let one = model(serde_json::json!(web)).unwrap();
        assert_eq!(one.weights().sha256.unwrap().to_string(), a);
        assert_eq!(one.weights().sources[0].to_string(), "https://host/m.gguf");
        model(serde_json::json!([
            web,
            "mirror:m.gguf",
            format!("pip:p==1/m.gguf#sha256={a}")
        ]))
        .unwrap();
        let other = digest("b");
        assert_eq!(
            model(serde_json::json!([
                web,
                format!("mirror:m.gguf#sha256={other}")
            ]))
            .unwrap_err(),
            "source[1]: its digest is another than what is said before"
        );
        // As some tools print them, and whatever case the other one has.
        let shouted = format!("https://host/m.gguf#SHA256={}", a.to_uppercase());
        let one = model(serde_json::json!([shouted, web])).unwrap();
        assert_eq!(one.weights().sha256.unwrap().to_string(), a);
        let cut = model(serde_json::json!("https://host/m.gguf#sha256=aa")).unwrap_err();
        assert!(
            cut.ends_with("after # comes sha256= and 64 hexadecimal digits"),
            "{cut}"
        );
    }
}
