//! API keys: made, hashed, checked.
//!
//! A [`Secret`] is 256 random bits, shown once. What is kept is its HMAC-SHA-256 under the cluster's
//! [`HashingKey`]: whoever reads the store can neither use the keys in it nor test guesses against them. A
//! gateway checks what clients present against a [`KeyRing`], which is never changed, only replaced.

use std::{collections::BTreeMap, fmt, sync::Arc};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    cluster::{
        account::{ApiKey, KeyHash, OperatorToken},
        tenancy::{Level, LevelPath, Limits, Pass},
    },
    error::{Code, Coded},
};

/// The key that all secrets of a cluster are hashed with. Without it, no stored hash can be checked.
#[derive(Clone)]
pub struct HashingKey([u8; 32]);

/// A secret that a client presents; 256 random bits behind a prefix that scanners for leaked secrets can know.
///
/// It is shown once, when it is made, and kept nowhere.
#[derive(Clone)]
pub struct Secret(String);

/// All keys that are valid, with what holds for each, as a snapshot.
///
/// A key whose time is over is in it until it is revoked, so that its holder can be told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRing {
    keys: BTreeMap<KeyHash, Arc<Pass>>,
}

/// All admin tokens that are valid, as a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TokenRing {
    tokens: BTreeMap<KeyHash, OperatorToken>,
}

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("asking the system for random bytes")]
pub struct EntropyError(#[source] getrandom::Error);

// === impl HashingKey ===

impl HashingKey {
    /// How many bytes it has.
    pub const LENGTH: usize = 32;

    /// Makes a new one.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, EntropyError> {
        random().map(Self)
    }

    /// The one with these bytes, as they were kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be kept where only the control plane can read them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The keyed hash of a secret.
    #[must_use]
    pub fn hash(&self, secret: &str) -> KeyHash {
        // HMAC fills a key that is shorter than its block with zeros (RFC 2104).
        let mut block = [0; BLOCK];
        block[..Self::LENGTH].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(secret.as_bytes());
        KeyHash(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for HashingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashingKey(…)")
    }
}

// === impl Secret ===

impl Secret {
    /// What every secret begins with.
    pub const PREFIX: &str = "sk-llmgw-";

    /// Makes a new one.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, EntropyError> {
        let bits: [u8; 32] = random()?;
        Ok(Self(format!("{}{}", Self::PREFIX, HEXLOWER.encode(&bits))))
    }

    /// What every admin token of a role begins with.
    pub const TOKEN_PREFIX: &str = "op-llmgw-";

    /// Makes a new admin token.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate_token() -> Result<Self, EntropyError> {
        let bits: [u8; 32] = random()?;
        let digits = HEXLOWER.encode(&bits);
        Ok(Self(format!("{}{digits}", Self::TOKEN_PREFIX)))
    }

    /// One that was made before and kept until it could be shown.
    #[must_use]
    pub const fn from_text(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, to be shown to its owner.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

// === impl KeyRing ===

impl KeyRing {
    /// The ring of these keys, none of which belongs to a level below the cluster.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = ApiKey>) -> Self {
        Self::with_levels(keys, [])
    }

    /// The ring of these keys, among these levels. A key of a level that is not there is left out: it opens nothing.
    #[must_use]
    pub fn with_levels(
        keys: impl IntoIterator<Item = ApiKey>,
        levels: impl IntoIterator<Item = Level>,
    ) -> Self {
        let levels = levels.into_iter().map(|level| (level.path, level.limits));
        let levels: BTreeMap<LevelPath, Limits> = levels.collect();
        let passes = keys.into_iter().filter_map(|key| Pass::of(key, &levels));
        Self {
            keys: passes.map(|pass| (pass.key().hash, pass.into())).collect(),
        }
    }

    /// The key that was presented, if it is valid.
    ///
    /// Looking the hash up takes a time that depends on the hash; without the hashing key, nobody learns anything
    /// about a secret from that.
    #[must_use]
    pub fn check(&self, hashing: &HashingKey, presented: &str) -> Option<&Arc<Pass>> {
        if presented.len() > MAX_PRESENTED {
            return None;
        }
        self.keys.get(&hashing.hash(presented))
    }

    /// How many keys it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no keys: nobody gets in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

// === impl TokenRing ===

impl TokenRing {
    /// The ring of these tokens.
    #[must_use]
    pub fn new(tokens: impl IntoIterator<Item = OperatorToken>) -> Self {
        let tokens = tokens.into_iter().map(|token| (token.hash, token));
        Self {
            tokens: tokens.collect(),
        }
    }

    /// The token that was presented, if it is valid; as [`KeyRing::check`].
    #[must_use]
    pub fn check(&self, hashing: &HashingKey, presented: &str) -> Option<&OperatorToken> {
        if presented.len() > MAX_PRESENTED || !presented.starts_with(Secret::TOKEN_PREFIX) {
            return None;
        }
        self.tokens.get(&hashing.hash(presented))
    }
}

// === impl EntropyError ===

impl Coded for EntropyError {
    fn code(&self) -> Code {
        Code::Internal
    }
}

fn random() -> Result<[u8; 32], EntropyError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(EntropyError)?;
    Ok(bytes)
}

/// The block of SHA-256.
const BLOCK: usize = 64;
/// Several times the length of a secret of ours. What is longer is refused before it is hashed.
const MAX_PRESENTED: usize = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{clock::Timestamp, id::KeyId};

    fn key(hash: KeyHash) -> ApiKey {
        ApiKey::new(KeyId::generate(), "a", hash, Timestamp(0))
    }

    #[test]
    fn a_hash_is_hmac_sha_256() {
        // RFC 4231, test case 2: the key "Jefe" stands for itself filled with zeros.
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(b"Jefe");
        let hash = HashingKey::from_bytes(bytes).hash("what do ya want for nothing?");
        assert_eq!(
            HEXLOWER.encode(&hash.0),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_secret_opens_with_its_own_key_only() {
        let hashing = HashingKey::generate().unwrap();
        let (mine, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        let key = key(hashing.hash(mine.expose()));
        let ring = KeyRing::new([key.clone()]);
        let found = ring.check(&hashing, mine.expose()).map(|pass| pass.key());
        assert_eq!(found, Some(&key));
        assert_eq!(ring.check(&hashing, other.expose()), None);
        assert_eq!(ring.check(&hashing, ""), None);
        assert_eq!(ring.check(&hashing, &format!("{} ", mine.expose())), None);
        let elsewhere = HashingKey::generate().unwrap();
        assert_eq!(ring.check(&elsewhere, mine.expose()), None);
        assert!(KeyRing::new([]).check(&hashing, mine.expose()).is_none());
    }

    #[test]
    fn an_admin_token_opens_with_its_own_secret_only() {
        let hashing = HashingKey::generate().unwrap();
        let secret = Secret::generate_token().unwrap();
        let token = OperatorToken {
            id: crate::id::TokenId::generate(),
            name: "ops".into(),
            role: crate::cluster::account::Role::Viewer,
            hash: hashing.hash(secret.expose()),
            created_at: Timestamp(0),
        };
        let key = Secret::generate().unwrap();
        let also = OperatorToken {
            hash: hashing.hash(key.expose()),
            ..token.clone()
        };
        let ring = TokenRing::new([token.clone(), also]);
        assert_eq!(ring.check(&hashing, secret.expose()), Some(&token));
        // An API key is no admin token, whatever its hash.
        assert_eq!(ring.check(&hashing, key.expose()), None);
        assert_eq!(ring.check(&hashing, ""), None);
    }

    #[test]
    fn what_is_too_long_is_refused_even_if_its_hash_is_known() {
        let hashing = HashingKey::generate().unwrap();
        let (fits, too_long) = ("x".repeat(512), "x".repeat(513));
        let ring = KeyRing::new([key(hashing.hash(&fits)), key(hashing.hash(&too_long))]);
        assert!(ring.check(&hashing, &fits).is_some());
        assert!(ring.check(&hashing, &too_long).is_none());
    }

    #[test]
    fn secrets_have_256_bits_and_differ() {
        let (one, two) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one.expose(), two.expose());
        let digits = one.expose().strip_prefix(Secret::PREFIX).unwrap();
        assert_eq!(HEXLOWER.decode(digits.as_bytes()).unwrap().len(), 32);
    }

    #[test]
    fn debug_shows_no_secret() {
        let hashing = HashingKey::from_bytes([0xab; 32]);
        let secret = Secret::generate().unwrap();
        let ring = KeyRing::new([key(hashing.hash(secret.expose()))]);
        assert_eq!(format!("{hashing:?}"), "HashingKey(…)");
        let shown = format!("{secret:?} {ring:?}");
        assert!(!shown.contains(secret.expose()), "{shown}");
        let hash = HEXLOWER.encode(&hashing.hash(secret.expose()).0);
        assert!(!shown.contains(&hash), "{shown}");
    }

    proptest! {
        #[test]
        fn nothing_that_is_presented_panics_or_opens(presented in ".{0,600}") {
            let hashing = HashingKey::from_bytes([7; 32]);
            let ring = KeyRing::new([key(hashing.hash("sk-llmgw-0"))]);
            prop_assert_eq!(ring.check(&hashing, &presented), None);
        }
    }
}
