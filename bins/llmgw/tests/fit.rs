//! The real `llmgw fit` on files that the writer of `llmgw-core` makes.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use llmgw_core::gguf::{TensorType, Value, write::Draft};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// What a command left behind.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn fit(directory: &TempDir, arguments: &[&str]) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_llmgw"))
        .arg("fit")
        .args(arguments)
        .current_dir(directory.path())
        .env_clear()
        .output()
        .unwrap();
    Ran {
        code: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// A llama of 4 layers of 8 MiB, with embeddings and an output of 16 MiB each; a layer keeps 512 bytes for a
/// token.
fn llama(architecture: &str) -> Draft {
    let field = |name: &str| format!("{architecture}.{name}");
    let mut draft = Draft::default()
        .with("general.architecture", Value::Text(architecture.into()))
        .with(&field("block_count"), Value::U32(4))
        .with(&field("context_length"), Value::U32(4096))
        .with(&field("embedding_length"), Value::U32(1024))
        .with(&field("feed_forward_length"), Value::U32(4096))
        .with(&field("attention.head_count"), Value::U32(8))
        .with(&field("attention.head_count_kv"), Value::U32(1))
        .with("tokenizer.ggml.tokens", Value::texts(["a"; 8192]))
        .tensor("token_embd.weight", &[1024, 8192], TensorType::F16)
        .tensor("output.weight", &[1024, 8192], TensorType::F16);
    for layer in 0..4 {
        let name = format!("blk.{layer}.ffn_up.weight");
        draft = draft.tensor(&name, &[1024, 4096], TensorType::F16);
    }
    draft
}

/// A directory with the header of `draft` as `m.gguf`.
fn with(draft: &Draft) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "m.gguf", &draft.header().unwrap());
    directory
}

fn put(directory: &Path, name: &str, bytes: &[u8]) {
    fs::write(directory.join(name), bytes).unwrap();
}

#[test]
fn a_table_shows_every_part_and_what_fits() {
    let directory = with(&llama("llama"));
    let ran = fit(
        &directory,
        &[
            "m.gguf",
            "--context",
            "4096",
            "--parallel",
            "2",
            "--gpu",
            "2GiB",
            "--memory",
            "1GiB",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = "\
m.gguf: llama, 4 layers, 64.0 MiB of weights, trained for 4096 tokens
llama.cpp, 4096 tokens of context for each of 2 requests at the same time

";
    assert!(ran.out.starts_with(said), "\n{}", ran.out);
    let rows: Vec<Vec<&str>> = ran
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        vec!["GPU", "0", "HOST"],
        vec!["layers", "4", "0"],
        vec!["weights", "48.0", "MiB", "16.0", "MiB"],
        vec!["cache", "16.0", "MiB", "0", "B"],
        vec!["state", "0", "B", "0", "B"],
        vec!["may", "use", "2.0", "GiB", "1.0", "GiB"],
        vec!["fits", "yes", "yes"],
    ] {
        assert!(rows.contains(&row), "{row:?}\n{}", ran.out);
    }
    let trained = "Largest context that fits: 4096 tokens, all that it was trained for\n";
    assert!(ran.out.contains(trained), "{}", ran.out);
    assert!(
        ran.out
            .contains("Most requests at the same time that fit: "),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "");
}

#[test]
fn programs_get_bytes() {
    let directory = with(&llama("llama"));
    let ran = fit(
        &directory,
        &[
            "m.gguf",
            "-c",
            "1024",
            "--gpu",
            "24GiB",
            "--cache-type-k",
            "q8_0",
            "-o",
            "json",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let answer: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["architecture"], "llama");
    assert_eq!(answer["devices"][0]["device"], json!({"gpu": 0}));
    // Keys: 128 elements in 4 blocks of 34 bytes; values: 256 bytes.
    assert_eq!(answer["devices"][0]["cache"], 4 * 1024 * (4 * 34 + 256));
    assert_eq!(answer["devices"][1]["device"], "host");
    assert_eq!(answer["fits"], true);
    assert_eq!(answer["largest_context"], 4096);
    let yaml = fit(&directory, &["m.gguf", "-o", "yaml"]);
    assert!(yaml.out.contains("architecture: llama\n"), "{yaml:?}");
}

#[test]
fn what_does_not_fit_ends_with_1_and_says_what_would() {
    let directory = with(&llama("llama"));
    let ran = fit(&directory, &["m.gguf", "--gpu", "900MiB", "-p", "64"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("short by"), "{}", ran.out);
    assert!(
        ran.out.contains("It fits with --gpu-layers "),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "");
}

#[test]
fn without_memory_to_fit_in_it_says_how_to_name_it() {
    let ran = fit(&with(&llama("llama")), &["m.gguf"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.out.ends_with(
            "Name the memory that there is (--gpu 24GiB, --memory 64GiB) to see what fits.\n"
        ),
        "{}",
        ran.out
    );
}

#[test]
fn an_architecture_that_is_not_known_is_refused_with_what_to_do() {
    let directory = with(&llama("marvin"));
    let ran = fit(&directory, &["m.gguf"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert_eq!(
        ran.err,
        "error: m.gguf: cannot bound marvin: no rule is known for the architecture\n\
         hint: name an architecture that is built alike (--like llama), or measure it once and declare it: \
         profiles: [{memory: 12GiB}]\n"
    );
    let like = fit(&directory, &["m.gguf", "--like", "llama"]);
    assert_eq!(like.code, Some(0), "{like:?}");
}

#[test]
fn files_that_can_t_be_right_are_refused_with_the_path_of_the_field() {
    let directory =
        with(&llama("llama").with("llama.nextn_predict_layers", Value::Text("x".into())));
    put(directory.path(), "page.gguf", b"<!DOCTYPE html>");
    let whole = llama("llama").header().unwrap();
    put(directory.path(), "short.gguf", &whole[..300]);
    for (file, code, expected) in [
        (
            "none.gguf",
            3,
            "error: none.gguf: reading the file: No such file",
        ),
        (
            "m.gguf",
            2,
            "error: m.gguf: metadata.llama.nextn_predict_layers: \"x\", not a whole number",
        ),
        (
            "page.gguf",
            2,
            "error: page.gguf: magic: these bytes are no GGUF file (at byte 0)\nhint: ",
        ),
        (
            "short.gguf",
            2,
            "error: short.gguf: the file ends after 300 bytes, and its header needs",
        ),
    ] {
        let ran = fit(&directory, &[file]);
        assert!(ran.err.starts_with(expected), "{ran:?}");
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
    }
}

#[test]
fn a_split_model_is_read_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let split = |draft: Draft, number: u16| {
        draft
            .with("split.no", Value::U16(number))
            .with("split.count", Value::U16(2))
            .with("split.tensors.count", Value::I32(7))
    };
    let first = split(llama("llama"), 0).header().unwrap();
    let second = split(Draft::default(), 1)
        .tensor("output_norm.weight", &[1024, 256], TensorType::F32)
        .header()
        .unwrap();
    put(directory.path(), "m-00001-of-00002.gguf", &first);
    let missing = fit(&directory, &["m-00001-of-00002.gguf"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(missing.err.contains("m-00002-of-00002.gguf"), "{missing:?}");
    put(directory.path(), "m-00002-of-00002.gguf", &second);
    let ran = fit(&directory, &["m-00001-of-00002.gguf"]);
    assert!(ran.out.contains("65.0 MiB of weights"), "{ran:?}");
    let other = fit(&directory, &["m-00002-of-00002.gguf"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(
        other
            .err
            .contains("hint: give the first file of a split model"),
        "{other:?}"
    );
}

#[test]
fn a_directory_with_safetensors_is_read_with_its_config() {
    let directory = tempfile::tempdir().unwrap();
    let header = json!({
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [1024, 1024], "data_offsets": [0, 2 << 20]},
        "model.layers.0.mlp.up_proj.weight": {"dtype": "BF16", "shape": [1024, 1024], "data_offsets": [2 << 20, 4 << 20]},
    })
    .to_string();
    let mut weights = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
    weights.extend(header.as_bytes());
    put(directory.path(), "model.safetensors", &weights);
    let missing = fit(&directory, &["."]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(
        missing.err.contains("hint: safetensors do not say"),
        "{missing:?}"
    );
    let config = json!({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 1024, "intermediate_size": 4096,
        "num_attention_heads": 8, "vocab_size": 1024, "max_position_embeddings": 2048,
    });
    put(
        directory.path(),
        "config.json",
        config.to_string().as_bytes(),
    );
    for path in [".", "model.safetensors"] {
        let ran = fit(
            &directory,
            &[path, "--engine", "vllm", "--gpu", "24GiB", "-o", "json"],
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let answer: Json = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(answer["devices"][0]["weights"], 4 << 20);
        // 2048 tokens of 8 heads, keys and values of 128 elements of 2 bytes.
        assert_eq!(answer["devices"][0]["cache"], 2048 * 8 * 2 * 128 * 2);
        // nine tenths of 24 GiB
        assert_eq!(answer["devices"][0]["limit"], (24_u64 << 30) * 9 / 10);
    }
}

#[test]
fn what_an_engine_can_t_do_is_wrong_usage() {
    let directory = with(&llama("llama"));
    for (arguments, expected) in [
        (
            vec!["--engine", "vllm"],
            "error: gpus: this engine needs a GPU\nhint: name its memory: --gpu 24GiB",
        ),
        (
            vec!["-c", "0"],
            "error: context: 0 tokens; 1 to 1073741824 can be\nhint: ",
        ),
        (vec!["--utilisation", "1.5"], "error: invalid value '1.5'"),
        (vec!["--gpu", "lots"], "error: invalid value 'lots'"),
        (
            vec!["--utilisation", "0.9"],
            "error: --utilisation: llama.cpp has no such setting\nhint: leave it out",
        ),
        (
            vec!["--engine", "vllm", "--gpu", "8GiB", "--kv-unified"],
            "error: --kv-unified: only llama.cpp has this setting",
        ),
        (
            vec!["--gpu-layers", "9"],
            "error: --gpu-layers: there is no GPU to put them on",
        ),
        (
            vec!["--draft", "2"],
            "error: --draft: the model has no draft layers of its own",
        ),
    ] {
        let mut all = vec!["m.gguf"];
        all.extend(arguments);
        let ran = fit(&directory, &all);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.starts_with(expected), "{ran:?}");
    }
}

#[test]
fn what_holds_no_weights_or_is_no_file_is_refused() {
    let directory = TempDir::new().unwrap();
    let empty = Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", Value::U32(4))
        .with("llama.embedding_length", Value::U32(1024))
        .with("llama.feed_forward_length", Value::U32(4096))
        .with("llama.attention.head_count", Value::U32(8))
        .with("tokenizer.ggml.tokens", Value::texts(["a"; 8192]));
    fs::write(directory.path().join("empty.gguf"), empty.header().unwrap()).unwrap();
    let ran = fit(&directory, &["empty.gguf"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("empty.gguf holds no weights"), "{ran:?}");
    let ran = fit(&directory, &["/dev/zero"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("/dev/zero is no file"), "{ran:?}");
}

/// Serves one file to everyone, by ranges; says how many bytes it sent.
fn serve(bytes: Vec<u8>) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let sent = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let count = std::sync::Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let answer = if head.starts_with("get /m.gguf?") {
                let range = head.split("range: bytes=").nth(1).unwrap();
                let (from, to) = range.split_once("\r\n").unwrap().0.split_once('-').unwrap();
                let from: usize = from.parse().unwrap();
                let to = to.parse::<usize>().unwrap().min(bytes.len() - 1);
                let part = &bytes[from..=to];
                count.fetch_add(part.len(), std::sync::atomic::Ordering::SeqCst);
                let head = format!(
                    "HTTP/1.1 206 X\r\ncontent-range: bytes {from}-{to}/{}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    bytes.len(),
                    part.len(),
                );
                [head.as_bytes(), part].concat()
            } else {
                b"HTTP/1.1 404 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
            };
            drop(stream.write_all(&answer));
        }
    });
    (base, sent)
}

#[test]
fn the_header_of_a_source_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = llama("llama").header().unwrap();
    fs::write(directory.path().join("local.gguf"), &file).unwrap();
    let header = file.len();
    file.resize(64 << 20, 0);
    let (base, sent) = serve(file);
    let far = fit(
        &directory,
        &[&format!("{base}/m.gguf?signature=secret"), "-o", "json"],
    );
    assert_eq!(far.code, Some(0), "{far:?}");
    assert!(!far.out.contains("secret"), "{}", far.out);
    let near = fit(&directory, &["local.gguf", "-o", "json"]);
    let devices = |ran: &Ran| serde_json::from_str::<Json>(&ran.out).unwrap()["devices"].clone();
    assert_eq!(devices(&far), devices(&near));
    let sent = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(
        header < 4 << 20 && sent <= 4 << 20,
        "{sent} bytes were sent for {header}"
    );
}

#[test]
fn a_source_that_is_not_there_or_does_not_answer_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (base, _sent) = serve(Vec::new());
    let missing = fit(&directory, &[&format!("{base}/other.gguf")]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    let missing = fit(&directory, &["hf:o/r/m.gguf", "--hub", &base]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    let nobody = fit(
        &directory,
        &["hf:o/r/m.gguf", "--hub", "http://127.0.0.1:9"],
    );
    assert_eq!(nobody.code, Some(4), "{nobody:?}");
    let relative = fit(&directory, &["mirror:m.gguf"]);
    assert_eq!(relative.code, Some(2), "{relative:?}");
}
