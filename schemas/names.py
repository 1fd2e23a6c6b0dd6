"""Names that clients give to what belongs to a run: calls, children's results, owners of leases."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

MAX_NAME_BYTES = 512
MAX_OWNER_CHARACTERS = 200

_WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What JavaScript's `trim` takes away; Python's `strip` takes other characters."""


def trim(text: str) -> str:
    """The text without white space around it, in the sense of JavaScript's `trim`."""
    return text.strip(_WHITE_SPACE)


def _of_right_size(name: str) -> str:
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise ValueError(f"String should have 1 to {MAX_NAME_BYTES} bytes")
    return name


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME_BYTES), AfterValidator(_of_right_size)
]
"""1 to 512 bytes of UTF-8, taken as they are."""

TrimmedName = Annotated[str, AfterValidator(trim), AfterValidator(_of_right_size)]
"""1 to 512 bytes of UTF-8 without the white space around them."""

Owner = Annotated[str, StringConstraints(min_length=1, max_length=MAX_OWNER_CHARACTERS)]
"""1 to 200 characters."""
