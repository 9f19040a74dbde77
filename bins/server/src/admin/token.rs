//! The admin token of the data directory.

use std::fmt;

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The admin token's digest: enough to know the token again, not to say it.
#[derive(Clone)]
pub struct AdminToken([u8; 32]);

// === impl AdminToken ===

impl AdminToken {
    /// What the file in the data directory is called that holds the token.
    pub const FILE: &str = "admin.token";

    /// Remembers a token. Spaces and line ends around it don't count, as in a file.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(Sha256::digest(secret.trim()).into())
    }

    /// Whether `presented` is the token. Takes the same time for every wrong one; an empty one never is.
    pub(super) fn admits(&self, presented: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        !presented.is_empty() && bool::from(digest.ct_eq(&self.0))
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

/// What a request presents.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_admitted() {
        let token = AdminToken::new("secret\n");
        assert!(token.admits("secret"));
        for wrong in ["", "secre", "secret2", "Secret"] {
            assert!(!token.admits(wrong), "{wrong:?}");
        }
        assert!(!AdminToken::new("").admits(""));
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn a_token_is_read_from_a_bearer_header_alone() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(read("Bearer a").as_deref(), Some("a"));
        assert_eq!(read("bearer  a ").as_deref(), Some("a"));
        for none in ["Basic a", "Bearer", "Bearer  ", "a"] {
            assert_eq!(read(none), None, "{none:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
