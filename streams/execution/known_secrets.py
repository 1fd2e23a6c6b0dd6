"""What an execution has decrypted, so that it is not told by accident: in events, in the run's end, in errors."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from schemas.secret_patterns import looks_secret

T = TypeVar("T")

HIDDEN = "(hidden)"
_SHORTEST = 4
"""What is shorter stands in too many words to be hidden everywhere."""


class KnownSecrets:
    """Texts that are hidden from whatever is reported."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def learn(self, session: Any) -> None:
        """Hide a decrypted session (any JSON) from now on: what looks like a secret, by itself or by its name.

        A session that is one text is a secret as a whole; of a URL the password is one too.
        """
        found = set(self._texts)
        stack = [("password", session)]
        while stack:
            name, value = stack.pop()
            if isinstance(value, str):
                if looks_secret(value) or looks_secret(f"{name}={value}"):
                    found.update({value, *_passwords(value)})
            elif isinstance(value, dict):
                stack += value.items()
            elif isinstance(value, list):
                stack += [(name, inner) for inner in value]
        # The longest first: what is part of another one would leave the rest of that one to be seen.
        self._texts = sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)

    def hide(self, value: T) -> T:
        """A copy of any JSON in which `(hidden)` stands for every secret; itself when there are none."""
        return self._hide(value) if self._texts else value

    def _hide(self, value: Any) -> Any:
        if isinstance(value, str):
            for text in self._texts:
                value = value.replace(text, HIDDEN)
            return value
        if isinstance(value, dict):
            return {self._hide(name): self._hide(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide(inner) for inner in value]
        return value

    def __repr__(self) -> str:
        return f"KnownSecrets({len(self._texts)})"


def _passwords(text: str) -> set[str]:
    try:
        password = urlsplit(text).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()
