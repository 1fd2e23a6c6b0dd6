"""What looks like a secret in the clear: URLs with a password, names of secrets with a value, well-known tokens."""

from __future__ import annotations

import re

# Every repetition is bounded: a hostile text must not cost more than its length.
_PATTERNS = re.compile(
    r"""
    ://[^\s/@:]{0,64}:[^\s@]{1,128}@                        # a URL with a password
    # DB_PASSWORD=..., "clientSecret": "...", dbPass=..., not bypass=...
    | (?:password|passwd|passphrase|pwd|secret|token|credentials?|authorization
        |(?:api|access|private|secret|account)[_-]?key|(?-i:(?<![A-Za-z])(?:pass|PASS)|Pass))
      ["']?\s{0,9}[=:]\s{0,9}["']?[^\s"',;}]
    | -----BEGIN\ [A-Z ]{0,40}KEY
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                           # AWS
    | \bgh[pousr]_[A-Za-z0-9]{20}                             # GitHub
    | \bxox[abeprs]-[A-Za-z0-9]                               # Slack
    | \b[sr]k[_-](?:live|test|proj|ant)[_-][A-Za-z0-9]        # payment and model providers
    | \beyJ[A-Za-z0-9_-]{8,200}\.[A-Za-z0-9_-]{1,200}           # a JSON web token
    """,
    re.IGNORECASE | re.VERBOSE,
)


def looks_secret(text: str) -> bool:
    """Whether a text holds something that looks like a secret. A random password cannot be told from a name."""
    return _PATTERNS.search(text) is not None
