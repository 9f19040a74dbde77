//! Secrets by the forms that their issuers gave them, so that they can be found.

/// All of them as one pattern; each begins with letters that stand in few other texts, by which it is found.
pub(in crate::guard) const PATTERN: &str = concat!(
    r"(?-u:\b(?:",
    // OpenAI, Anthropic, OpenRouter, this gateway, and others that write theirs so.
    r"sk-[A-Za-z0-9_-]{20,}",
    r"|op-llmgw-[0-9a-f]{32,}",
    // GitHub, GitLab.
    r"|gh[pousr]_[A-Za-z0-9]{36,}",
    r"|github_pat_[A-Za-z0-9_]{22,}",
    r"|glpat-[A-Za-z0-9_-]{20,}",
    // Amazon, Google.
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"|AIza[A-Za-z0-9_-]{35}",
    // Slack, Stripe, SendGrid.
    r"|xox[abposr]-[A-Za-z0-9-]{10,}",
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,}",
    // Hugging Face, npm, PyPI.
    r"|hf_[A-Za-z0-9]{30,}",
    r"|npm_[A-Za-z0-9]{36}",
    r"|pypi-[A-Za-z0-9_-]{50,}",
    // A JSON web token: its head and its claims begin with the base64 of `{"`.
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r")",
    // A private key, with what of it follows.
    r"|-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----[A-Za-z0-9+/=\s]*(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----)?",
    r")",
);
