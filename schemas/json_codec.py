"""JSON as the wire contract defines it (spec wire 1): RFC 8259, UTF-8, nothing that only Python reads."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any

import orjson

MAX_NESTING = 64
"""Deepest nesting of a command; the outermost object counts as 1."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Digits are told as 0, openers as {: what may be wrong shows in one pass over the bytes.
_SHAPE = bytes.maketrans(b"123456789[", b"000000000{")
_MAYBE_BEYOND_INT64 = b"0" * 19


class InvalidJsonError(ValueError):
    """The bytes are not JSON in the sense of the wire contract; the message says why and quotes nothing."""


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON without ASCII escaping beyond what JSON needs."""
    return orjson.dumps(value)


def encode_canonical(value: Any) -> bytes:
    """As `encode`, with the names of every object in the order of their code points: equal values, equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def require_faithful(value: Any) -> None:
    """Raises `TypeError` for what `encode` refuses, and for what it would silently store as something else.

    NaN and infinities would become null, dates and times would come back as text.
    """
    data = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)
    if b"null" in data and (number := _not_finite(value)) is not None:
        raise TypeError(f"JSON has no number {number}; None or text can stand for it")


def decode(data: bytes) -> Any:
    """The value that the bytes stand for; of a doubled name the last counts.

    Raises `InvalidJsonError` for a BOM, text that is not UTF-8, `NaN`, infinities, numbers beyond a double,
    integers outside 64 bits, lone surrogates, and nesting deeper than `MAX_NESTING`.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidJsonError(f"the value is not JSON: {error.msg} at byte {error.pos}") from None
    shape = data.translate(_SHAPE)
    # Openers inside strings only make this count too high: it is a cheap reason to look, not a verdict.
    if shape.count(b"{") > MAX_NESTING and _depth(value) > MAX_NESTING:
        raise InvalidJsonError(f"the value is nested deeper than {MAX_NESTING}")
    if _MAYBE_BEYOND_INT64 in shape:
        json.loads(data, parse_int=_int64)
    return value


def embed(data: bytes) -> Any:
    """A value that `encode` writes as exactly these bytes, which must be JSON: spares decoding them."""
    return orjson.Fragment(data)


def same_value(left: Any, right: Any) -> bool:
    """Whether decoded JSON values are equal: 1 is 1.0, `true` is not 1, the order of names does not count."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same_value(value, right[name]) for name, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _not_finite(value: Any) -> float | None:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, float) and not math.isfinite(node):
            return node
        if isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            stack.extend(node)
        elif isinstance(node, Enum):
            stack.append(node.value)
        elif dataclasses.is_dataclass(node):
            stack.extend(getattr(node, field.name, None) for field in dataclasses.fields(node))
    return None


def _int64(digits: str) -> int:
    number = int(digits) if len(digits) <= 20 else _INT64_MAX + 1
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise InvalidJsonError("the value holds an integer outside -2^63..2^63-1")
    return number


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict):
            children = list(node.values())
        elif isinstance(node, list):
            children = node
        else:
            continue
        deepest = max(deepest, depth)
        stack.extend((child, depth + 1) for child in children)
    return deepest
