"""Database sessions as clients send and get them: encrypted, else refused before anything shows them.

This module is the only one that looks at a session which may be in the clear. What it says about one is made of
its own words and of the names of the fields below, never of what came (spec coordinator 5).
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from schemas.errors import ErrorCode
from schemas.secret_patterns import looks_secret

NONCE_BYTES = 12
"""16 characters of base64, which need no padding."""
TAG_BYTES = 16
MAX_SESSIONS = 100

_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_BASE64 = r"^[A-Za-z0-9+/]+={0,2}$"
_READABLE = re.compile(rb"[\t\r\n -~]{32}")

Label = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=_LABEL)]


class EncryptedSession(BaseModel):
    """A database session that only the holder of a key can read. Other fields than these are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=True
    )

    name: Label
    """Tells the run's sessions apart: 1..64 letters, digits, `.`, `_`, `-`; bound to the ciphertext."""
    algorithm: Literal["A256GCM"]
    """AES-256 in Galois/Counter Mode."""
    key_id: Label
    """Which key it takes: 1..64 letters, digits, `.`, `_`, `-`. The key itself is never sent."""
    nonce: Annotated[str, StringConstraints(min_length=16, max_length=16, pattern=r"^[A-Za-z0-9+/]+$")]
    """12 bytes in base64, other ones for each encryption."""
    ciphertext: Annotated[str, StringConstraints(min_length=24, pattern=_BASE64)]
    """The encrypted session and its tag of 16 bytes, in base64."""


def associated_data(run_id: str, name: str) -> bytes:
    """What a ciphertext is bound to: it cannot be passed off as another run's, or as another session."""
    return b"runlane.session.1\0" + run_id.encode() + b"\0" + name.encode()


def open_session(sessions: Any) -> str | None:
    """Why `sessions` (any JSON) are not all encrypted, in words that quote nothing; None when they are."""
    if type(sessions) is not list:
        return "they have to be a list"
    if len(sessions) > MAX_SESSIONS:
        return f"a run has at most {MAX_SESSIONS} of them"
    for number, session in enumerate(sessions, 1):
        problem = _problem(session)
        if problem is not None:
            return f"number {number} {problem}"
    return None


def _problem(session: Any) -> str | None:
    try:
        found = EncryptedSession.model_validate(session)
    except ValidationError as error:
        return _wrong_field(error)
    for field, text in (("name", found.name), ("keyId", found.key_id)):
        if looks_secret(text):
            return f"has a `{field}` that looks like a secret"
    try:
        data = b64decode(found.ciphertext, validate=True)
    except ValueError:
        return "has a `ciphertext` that is not base64"
    if _is_text(data):
        return "has a `ciphertext` that is readable text: it is not encrypted"
    return None


def _wrong_field(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    known = [field.alias for field in EncryptedSession.model_fields.values()]
    if name in known:
        return f"needs a right `{name}`"
    if first["type"] == "extra_forbidden":
        return f"has a field that is none of {', '.join(f'`{field}`' for field in known)}"
    return "is not an object"


def _is_text(data: bytes) -> bool:
    """Whether bytes are readable text, or hold 32 characters of it.

    What is encrypted does not, but for one in billions. Zero bytes do not count: text in UTF-16 has them.
    """
    if _READABLE.search(data.replace(b"\0", b"")) is not None:
        return True
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(character >= " " or character in "\t\r\n" for character in text)


def _require_encrypted(sessions: Any) -> Any:
    problem = open_session(sessions)
    if problem is not None:
        raise PydanticCustomError(
            ErrorCode.SESSION_NOT_ENCRYPTED.value,
            "Sessions have to be encrypted: {problem}",
            {"problem": problem},
        )
    return sessions


EncryptedSessions = Annotated[list[EncryptedSession], BeforeValidator(_require_encrypted)]
"""A field of a command that holds encrypted sessions; anything else is `SESSION_NOT_ENCRYPTED`."""
