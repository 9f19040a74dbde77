//! What a helper program gets of the agent's own environment: what is named here, and nothing else.
//!
//! The agent's environment may hold what no program of others should see: the operator's tokens for hubs and clouds,
//! our own settings. So the list says what is passed on, and not what is held back.

use std::ffi::{OsStr, OsString};

/// How much a helper program inherits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Inherits {
    /// What any program needs to run.
    Basics,
    /// Also what `pip`, `uv` and the system's packages are configured with: indexes, proxies, certificates.
    PackageSettings,
}

impl Inherits {
    /// Of the environment of this process.
    pub(super) fn chosen(self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(move |(name, _)| self.takes(name))
    }

    fn takes(self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        let basic = BASICS.contains(&name) || name.starts_with("LC_");
        match self {
            Self::Basics => basic,
            Self::PackageSettings => {
                basic
                    || PACKAGES.contains(&name)
                    || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                    || PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
            }
        }
    }
}

/// Without the path of its libraries an interpreter that was built elsewhere does not start.
const BASICS: [&str; 8] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "TZ",
    "LD_LIBRARY_PATH",
];
/// Where certificates, passwords of indexes and configuration files are.
const PACKAGES: [&str; 11] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSL_CLIENT_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NETRC",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "APT_CONFIG",
];
const PREFIXES: [&str; 2] = ["PIP_", "UV_"];
/// Written in small or in capital letters.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_tools_get_their_settings_and_nobody_gets_a_secret() {
        let takes = |inherits: Inherits, name: &str| inherits.takes(OsStr::new(name));
        for basic in ["PATH", "HOME", "LC_ALL", "LD_LIBRARY_PATH"] {
            assert!(takes(Inherits::Basics, basic), "{basic}");
            assert!(takes(Inherits::PackageSettings, basic), "{basic}");
        }
        for setting in [
            "PIP_INDEX_URL",
            "UV_DEFAULT_INDEX",
            "SSL_CERT_FILE",
            "https_proxy",
            "HTTPS_PROXY",
            "No_Proxy",
        ] {
            assert!(takes(Inherits::PackageSettings, setting), "{setting}");
            assert!(!takes(Inherits::Basics, setting), "{setting}");
        }
        for secret in [
            "HF_TOKEN",
            "LLMGW_ADMIN_TOKEN",
            "LLMGW_TOKEN_FILE",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "LD_PRELOAD",
            "PYTHONPATH",
        ] {
            assert!(!takes(Inherits::PackageSettings, secret), "{secret}");
            assert!(!takes(Inherits::Basics, secret), "{secret}");
        }
    }
}
