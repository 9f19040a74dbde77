//! Which files belong together, from their names.

/// The names of all parts of a split GGUF, the first first, from that of any: `m-00002-of-00003.gguf`. `None` for a
/// name that is none of a part. Whether the file agrees is for who reads its header.
///
/// The form is that of llama.cpp's `llama_split_path`.
#[must_use]
pub fn gguf_parts(path: &str) -> Option<Vec<String>> {
    let rest = path.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let (number, count) = (five_digits(number)?, five_digits(count)?);
    let fits = number >= 1 && number <= count && (2..=MOST_PARTS).contains(&count);
    if !fits || stem.is_empty() || stem.ends_with('/') {
        return None;
    }
    Some(
        (1..=count)
            .map(|part| format!("{stem}-{part:05}-of-{count:05}.gguf"))
            .collect(),
    )
}

/// Whether a file is the list of the files that a model in safetensors is made of.
#[must_use]
pub fn is_index(path: &str) -> bool {
    path.ends_with(".safetensors.index.json")
}

/// The files that an engine needs beside the weights at `path`, of all that are in the repository: configuration,
/// tokenizer and chat template, in the same directory.
///
/// Code (`.py`) is not among them: nothing that a repository brings along is run.
#[must_use]
pub fn companions<'l>(path: &str, listing: impl IntoIterator<Item = &'l str>) -> Vec<&'l str> {
    let (directory, _) = path.rsplit_once('/').unwrap_or(("", path));
    let beside = |other: &&str| {
        let (of, name) = other.rsplit_once('/').unwrap_or(("", other));
        let end = name.rsplit_once('.').map_or("", |(_, end)| end);
        of == directory
            && !name.starts_with('.')
            && COMPANIONS.contains(&end)
            && !is_index(name)
            && !name.eq_ignore_ascii_case("readme.txt")
    };
    listing.into_iter().filter(beside).collect()
}

fn five_digits(text: &str) -> Option<usize> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// `config.json`, `tokenizer.model`, `merges.txt`, `chat_template.jinja`, `tekken.json`, `*.tiktoken`.
const COMPANIONS: &[&str] = &["json", "model", "txt", "jinja", "tiktoken"];
/// As many as a header reader takes.
const MOST_PARTS: usize = 1_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_of_a_split_model_are_told_from_the_name_of_one() {
        let parts = gguf_parts("dir/m-q4-00002-of-00003.gguf").unwrap();
        assert_eq!(
            parts,
            [
                "dir/m-q4-00001-of-00003.gguf",
                "dir/m-q4-00002-of-00003.gguf",
                "dir/m-q4-00003-of-00003.gguf"
            ]
        );
        for other in [
            "m.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00001-of-00001.gguf",
            "m-1-of-3.gguf",
            "-00001-of-00003.gguf",
            "dir/-00001-of-00003.gguf",
            "m-00001-of-00003.bin",
            "m-00001-of-99999.gguf",
            "m-+0001-of-00003.gguf",
        ] {
            assert_eq!(gguf_parts(other), None, "{other}");
        }
    }

    #[test]
    fn a_model_in_safetensors_takes_what_lies_beside_it_and_no_code() {
        let listing = [
            ".gitattributes",
            "README.md",
            "config.json",
            "model.safetensors.index.json",
            "modeling_x.py",
            "tokenizer.json",
            "tokenizer.model",
            "chat_template.jinja",
            "original/params.json",
            "model-00001-of-00002.safetensors",
        ];
        assert_eq!(
            companions("model.safetensors.index.json", listing),
            [
                "config.json",
                "tokenizer.json",
                "tokenizer.model",
                "chat_template.jinja"
            ]
        );
        assert_eq!(
            companions("original/consolidated.safetensors", listing),
            ["original/params.json"]
        );
    }

    proptest! {
        #[test]
        fn any_name_is_one_of_its_own_parts_or_no_part(name in "[a-z/-]{0,6}(-[0-9]{4,6}-of-[0-9]{4,6})?(.gguf)?|.{0,30}") {
            if let Some(parts) = gguf_parts(&name) {
                prop_assert!(parts.contains(&name));
                prop_assert!(parts.len() >= 2 && parts.len() <= MOST_PARTS);
            }
        }
    }
}
