"""What functions give and get, as JSON."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from schemas.json_codec import decode, encode, encode_canonical, require_faithful


def plain(value: Any) -> Any:
    """A pydantic model as the JSON that it stands for; anything else as it is."""
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value


def stored_form(value: Any) -> Any:
    """A value as it comes back when it was stored: tuples are lists, models are objects.

    Raises `TypeError` for what is no JSON or would silently change, such as NaN.
    """
    value = plain(value)
    require_faithful(value)
    return decode(encode(value))


def hash_input(value: Any) -> str:
    """SHA-256, in hexadecimal, of a value's canonical JSON: no white space, names in the order of their code points.

    Raises `TypeError` for what is no JSON.
    """
    value = plain(value)
    require_faithful(value)
    return sha256(encode_canonical(value)).hexdigest()
