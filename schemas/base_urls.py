"""Base URLs that callers give (spec coordinator 9)."""

from __future__ import annotations

import re

from schemas.names import trim

_BASE_URL = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{0,5}))?/?", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65_535


def base_url(given: object) -> str | None:
    """The URL in its usual form, without a slash at its end; None for what is none.

    It has to be http or https, without user, password, query, fragment and path.
    """
    found = _BASE_URL.fullmatch(trim(given)) if isinstance(given, str) else None
    if found is None:
        return None
    scheme, host = found[1].lower(), found[2].lower()
    port = int(found[3]) if found[3] else _DEFAULT_PORTS[scheme]
    if port > _MAX_PORT:
        return None
    return f"{scheme}://{host}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"
