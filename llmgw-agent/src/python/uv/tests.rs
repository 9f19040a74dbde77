use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use super::{settings::translate, *};
use crate::command::Finished;

fn failed_with(output: &str) -> UvError {
    failure(&Finished {
        status: ExitStatus::from_raw(1 << 8),
        lines: output.lines().map(ToOwned::to_owned).collect(),
    })
}

fn told(pip: &[(&str, &str)], set: &[&str]) -> Vec<(String, String)> {
    let pip = pip
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    translate(&pip, &|name| set.contains(&name))
        .into_iter()
        .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
        .collect()
}

#[test]
fn the_lock_of_uv_pins_the_version_that_the_code_names() {
    assert!(REQUIREMENTS.contains(&format!("\nuv=={PACKAGE_VERSION} \\\n")));
    assert!(UvVersion::parse(PACKAGE_VERSION).unwrap() > OLDEST);
    assert_eq!(REQUIREMENTS.matches("--hash=sha256:").count(), 3);
    assert!(!REQUIREMENTS.contains("://"));
}

#[test]
fn uv_is_told_what_pip_is_told() {
    let told = told(
        &[
            ("global.index-url", "https://one/simple"),
            (":env:.index-url", "https://two/simple"),
            (
                "global.extra-index-url",
                "\nhttps://three/simple\nhttps://four/simple",
            ),
            ("global.find-links", "/wheels /more"),
            ("global.cert", "/ca.pem"),
            (":env:.no-index", "1"),
            (":env:.default-timeout", "180"),
            ("list.format", "columns"),
        ],
        &[],
    );
    let expected = [
        ("UV_DEFAULT_INDEX", "https://two/simple"),
        ("UV_INDEX", "https://three/simple https://four/simple"),
        ("UV_NO_INDEX", "1"),
        ("UV_FIND_LINKS", "/wheels,/more"),
        ("SSL_CERT_FILE", "/ca.pem"),
        ("UV_HTTP_TIMEOUT", "180"),
    ];
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn what_uv_is_told_already_stands() {
    let pip = [
        ("global.index-url", "https://one/simple"),
        ("global.cert", "/ca.pem"),
    ];
    assert_eq!(told(&pip, &["UV_INDEX_URL", "SSL_CERT_FILE"]), []);
}

#[test]
fn other_bytes_than_pinned_are_told_from_other_failures() {
    let error = failed_with(
        "  × Failed to download `demo==1.0`\n  ╰─▶ Hash mismatch for `demo==1.0`\n\n      Expected:\n        \
         sha256:aaaa\n\n      Computed:\n        sha256:bbbb\n",
    );
    assert_eq!(
        error.to_string(),
        "the index gives other bytes for demo 1.0: sha256 bbbb, not the pinned aaaa"
    );
    assert_eq!(error.code(), Code::VerificationFailed);
    let error = failed_with(
        "  × Failed to download `demo==1.0`\n  ├─▶ Failed to extract archive: demo-1.0-py3-none-any.whl\n  ╰─▶ Bad CRC \
         (got 7e158c3e, expected 1a515a9a) for file: demo/__init__.py",
    );
    assert!(
        matches!(&error, UvError::Damaged { package, .. } if package == "demo 1.0"),
        "{error}"
    );
}

#[test]
fn an_index_that_is_away_is_told_from_one_that_lacks_the_package() {
    let error = failed_with(
        "error: Request failed after 3 retries in 13.4s\n  cause: Failed to fetch: `https://user:secret@host/simple/`\n  \
         cause: dns error",
    );
    let text = error.to_string();
    assert!(matches!(error, UvError::Unreachable { .. }), "{text}");
    assert!(!text.contains("secret"), "{text}");
    for (said, package) in [
        (
            "cause: Because there is no version of demo==1.0 and you require demo==1.0, we",
            "demo 1.0",
        ),
        (
            "Because demo==1.0 has no wheels with a matching platform tag (e.g., `x`) and",
            "demo 1.0",
        ),
        (
            "Because demo was not found in the package registry and you require demo",
            "demo",
        ),
    ] {
        let error = failed_with(said);
        let UvError::Missing { package: found } = error else {
            panic!("{error}");
        };
        assert_eq!(found, package);
    }
}

#[test]
fn a_full_disk_is_told_as_one() {
    let error = failed_with("error: Failed to extract: No space left on device (os error 28)");
    assert!(matches!(error, UvError::Full { .. }), "{error}");
    let error = failed_with("error: something new");
    assert_eq!(
        error.to_string(),
        "uv failed (exit status: 1): something new"
    );
}
