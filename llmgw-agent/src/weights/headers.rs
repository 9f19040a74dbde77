//! Headers of weights that lie here, for a control plane that asks what they need.

use std::path::{Path, PathBuf};

use llmgw_core::{
    cluster::weights::{MAX_ASKED, Source, ToldHeader, Weights},
    error::Chain,
    gguf::{Header, Limits, open},
};

use super::shelf::Shelf;

/// Reads the headers that are asked for, of weights that lie here. What was told before is not read again; of weights
/// that do not lie here, nothing is told. It may wait for the disk.
pub(super) fn tell(store: &Path, asked: &[Weights], before: &[ToldHeader]) -> Vec<ToldHeader> {
    let asked = asked.iter().take(MAX_ASKED);
    asked
        .filter_map(|weights| {
            let of = ToldHeader::name(weights)?;
            let known = before.iter().find(|told| told.of == of);
            if let Some(known) = known.filter(|told| told.gguf.is_some()) {
                return Some(known.clone());
            }
            let path = place(store, weights)?;
            let read = read(&path);
            Some(ToldHeader::new(of, read.as_ref().map_err(Clone::clone)))
        })
        .collect()
}

fn read(path: &Path) -> Result<Header, String> {
    open(path, &Limits::default()).map_err(|error| Chain(&error).to_string())
}

/// Where they lie, whole.
fn place(store: &Path, weights: &Weights) -> Option<PathBuf> {
    let named = weights.sources.iter().filter_map(|source| match source {
        Source::File { path } => Some(PathBuf::from(path)),
        _ => None,
    });
    let kept = weights.sha256.filter(|_| weights.files.is_empty());
    let kept = kept.and_then(|digest| Shelf::new(store, digest).whole());
    // A pipe would be waited for.
    named.chain(kept).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use llmgw_core::gguf::{TensorType, Value, write::Draft};

    use super::*;

    #[test]
    fn a_file_that_lies_here_is_told_and_nothing_is_told_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let draft = Draft::default()
            .with("general.architecture", Value::Text("llama".into()))
            .tensor("a", &[64, 2], TensorType::F16);
        let good = directory.path().join("good.gguf");
        std::fs::write(&good, draft.header().unwrap()).unwrap();
        let page = directory.path().join("page.gguf");
        std::fs::write(&page, "<html>").unwrap();
        let of = |path: &Path| Weights {
            sources: vec![format!("file:{}", path.display()).parse().unwrap()],
            sha256: None,
            size: None,
            files: Vec::new(),
        };
        let asked = [of(&good), of(&page), of(&directory.path().join("none"))];
        let told = tell(directory.path(), &asked, &[]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0].header().unwrap().tensors.len(), 1);
        assert!(
            told[1].header().unwrap_err().contains("no GGUF file"),
            "{told:?}"
        );

        // What was told is told again without being read; what could not be read is looked at again.
        std::fs::remove_file(&good).unwrap();
        std::fs::write(&page, draft.header().unwrap()).unwrap();
        let again = tell(directory.path(), &asked, &told);
        assert_eq!(again[0], told[0]);
        assert!(again[1].header().is_ok());
    }
}
