//! Opens the store that a text names.

use std::sync::Arc;

#[cfg(feature = "postgres")]
use super::PostgresStore;
#[cfg(feature = "sqlite")]
use super::SqliteStore;
use super::{MemoryStore, Store, StoreError};
use crate::clock::SystemClock;

/// Opens the store at `url`: `memory:`, `sqlite:PATH` or `postgres://…`.
///
/// # Errors
/// [`StoreError::Url`] when the text names no store of this build; else what opening that store says.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let (scheme, rest) = url
        .split_once(':')
        .ok_or_else(|| refused(url, "it names no kind of store"))?;
    match scheme {
        "memory" if rest.is_empty() => {
            let store = MemoryStore::new(Arc::new(SystemClock::new()));
            Ok(Arc::new(store.forgetting()))
        }
        "memory" => Err(refused(url, "a memory store has no name")),
        "sqlite" => open_sqlite(url, rest).await,
        "postgres" | "postgresql" if rest.starts_with("//") => open_postgres(url).await,
        "postgres" | "postgresql" => Err(refused(url, "it lacks the // after the scheme")),
        _ => Err(refused(url, "there is no store of that kind")),
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(url: &str, rest: &str) -> Result<Arc<dyn Store>, StoreError> {
    match rest.strip_prefix("//").unwrap_or(rest) {
        "" => Err(refused(url, "it names no file")),
        ":memory:" => Err(refused(url, "a store in memory is written memory:")),
        path => Ok(Arc::new(SqliteStore::open(path).await?)),
    }
}

#[cfg(not(feature = "sqlite"))]
#[expect(
    clippy::unused_async,
    reason = "stands in for the one that opens a file"
)]
async fn open_sqlite(url: &str, _rest: &str) -> Result<Arc<dyn Store>, StoreError> {
    Err(refused(url, "this build is without the sqlite feature"))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(PostgresStore::connect(url).await?))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "stands in for the one that connects")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Err(refused(url, "this build is without the postgres feature"))
}

/// The error for a text that names no store.
pub(super) fn refused(url: &str, problem: &'static str) -> StoreError {
    StoreError::Url {
        url: without_password(url),
        problem,
    }
}

/// The text without what may be a password. Rather hides too much: the user part reaches to the *last* `@`,
/// because a password that was pasted without escapes may contain one.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    let authority = rest.strip_prefix("//").unwrap_or(rest);
    let user = authority.rsplit_once('@');
    let mut shown = match user.and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((name, host)) => format!("{scheme}:{slashes}{name}:…@{host}"),
        None => url.to_owned(),
    };
    if let Some((before, query)) = shown.split_once('?') {
        let parameters: Vec<String> = query
            .split('&')
            .map(|parameter| match parameter.split_once('=') {
                Some((name, _)) if name.to_ascii_lowercase().contains("pass") => {
                    format!("{name}=…")
                }
                _ => parameter.to_owned(),
            })
            .collect();
        shown = format!("{before}?{}", parameters.join("&"));
    }
    if shown.chars().count() > MAX_SHOWN {
        shown = shown.chars().take(MAX_SHOWN).chain(['…']).collect();
    }
    shown
}

const MAX_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Coded;

    #[tokio::test]
    async fn what_names_no_store_is_refused_with_a_hint() {
        for bad in [
            "",
            "memory",
            "memory:x",
            "mysql://u:p@h/d",
            "sqlite",
            "/var/lib/x.db",
            "postgres:db",
            "http://h",
        ] {
            let error = open(bad).await.unwrap_err();
            assert!(matches!(error, StoreError::Url { .. }), "{bad:?}: {error}");
            assert!(error.hint().unwrap().contains("sqlite:"), "{bad:?}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_sqlite_store_needs_a_file() {
        for bad in ["sqlite:", "sqlite://", "sqlite::memory:"] {
            let error = open(bad).await.unwrap_err();
            assert!(matches!(error, StoreError::Url { .. }), "{bad:?}: {error}");
        }
    }

    #[cfg(not(feature = "postgres"))]
    #[tokio::test]
    async fn a_kind_that_was_not_built_in_is_named() {
        let error = open("postgres://u:hunter2@h/d").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"postgres://u:…@h/d\" is not a store: this build is without the postgres feature"
        );
    }

    #[tokio::test]
    async fn memory_opens() {
        assert_eq!(open("memory:").await.unwrap().describe(), "memory");
    }

    #[test]
    fn passwords_are_not_repeated() {
        for (url, shown) in [
            ("mysql://me:hunter2@host/db", "mysql://me:…@host/db"),
            ("mysql://me:hun@t/er:2@host/db", "mysql://me:…@host/db"),
            ("mysql://me@host/db", "mysql://me@host/db"),
            (
                "x://host/db?password=hunter2&a=b",
                "x://host/db?password=…&a=b",
            ),
            (
                "x://host/db?sslpassword=hunter2",
                "x://host/db?sslpassword=…",
            ),
            ("mysql:me:hunter2@host", "mysql:me:…@host"),
            ("mysql:me:hunt//er2@host", "mysql:me:…@host"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    proptest! {
        #[test]
        fn no_password_is_repeated(
            user in "[a-y]{0,5}",
            password in "[Z@:/?#&=]{0,8}ZZ[Z@:/?#&=]{0,8}",
            tail in "[a-y/?=&]{0,9}",
        ) {
            let shown = without_password(&format!("any://{user}:{password}@host{tail}"));
            prop_assert!(!shown.contains("ZZ"), "{shown}");
        }
    }
}
