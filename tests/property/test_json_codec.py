"""JSON as the wire has it (spec wire 1): what is read, what is written, and when two values are equal."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.json_codec import MAX_NESTING, InvalidJsonError, decode, embed, encode, same_value
from tests.property.json_values import NUMBERS, TEXT, VALUES


class NotStrictError(ValueError):
    """The oracle says no."""


def strict_loads(data: bytes) -> Any:
    """The oracle: Python's decoder; refuses what RFC 8259 or the wire contract does not have."""

    def integer(digits: str) -> int:
        if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
            raise NotStrictError
        return int(digits)

    def number(digits: str) -> float:
        if math.isinf(float(digits)):
            raise NotStrictError
        return float(digits)

    def constant(_: str) -> Any:
        raise NotStrictError

    text = data.decode("utf-8")
    if text.startswith("\ufeff"):
        raise NotStrictError
    value = json.loads(text, parse_int=integer, parse_float=number, parse_constant=constant)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    if nesting(value) > MAX_NESTING:
        raise NotStrictError
    return value


def nesting(value: Any) -> int:
    """1 for the outermost array or object."""
    if isinstance(value, dict):
        return 1 + max(map(nesting, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(nesting, value), default=0)
    return 0


def exactly(value: Any) -> str:
    """Text that tells 1, 1.0, -0.0 and true apart."""
    return json.dumps(value)


JSON_PIECES = [
    *b'{ } [ ] , : " \\ "a" "a":1 {} [] "\\ud800" "\\udc00" "\\ud83d\\ude00" "\\u0000" "\\x"'.split(),
    *b"0 1 -1 1e5 1E400 0.5 -0 -0.0 01 1. .5 +1 true false null nan NaN Infinity -Infinity".split(),
    *b"9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809".split(),
    *[b"\xef\xbb\xbf", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xc2\xa0", b"\x00", b"\x0b", b"\n", b" "],
    *[b"1" * 400, b"18446744073709551616", b'"' + b"9" * 20 + b'"', b"0." + b"1" * 30, b"[" * 60, b"]" * 60],
]


def spliced(value: Any, at: int, piece: bytes) -> bytes:
    """The JSON of a value with something put into it."""
    data = encode(value)
    at %= len(data) + 1
    return data[:at] + piece + data[at:]


almost_json = st.one_of(
    st.lists(st.sampled_from(JSON_PIECES), max_size=8).map(b"".join),
    st.builds(spliced, VALUES, st.integers(0, 200), st.sampled_from([b"", *JSON_PIECES])),
    st.integers(62, 67).map(lambda depth: b'{"a":' * (depth - 1) + b"[]" + b"}" * (depth - 1)),
    st.binary(max_size=20),
)


@given(almost_json)
@example(b"1e400")
@example(b'{"a":1,"a":2}')
@example(b"[" * 2000 + b"]" * 2000)
def test_reading_agrees_with_a_strict_reader(data: bytes) -> None:
    try:
        expected = strict_loads(data)
    except (ValueError, RecursionError):
        with pytest.raises(InvalidJsonError):
            decode(data)
    else:
        assert exactly(decode(data)) == exactly(expected)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"[1e400]",
        b"9223372036854775808",
        b"-9223372036854775809",
        b'["123",9223372036854775808]',
        b"1" * 25,
        b"-" + b"1" * 21,
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"\n"',
        b"{'a':1}",
        b"[1,]",
        b"01",
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
    ],
)
def test_what_is_not_json_here(data: bytes) -> None:
    with pytest.raises(InvalidJsonError) as raised:
        decode(data)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" {} ", {}),
        (b'{"a":1,"a":{"b":2}}', {"a": {"b": 2}}),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"10000000000000000000.5", 1e19),
        (b"1" * 25 + b"e-20", 11111.111111111111),
        (b'"' + b"9" * 40 + b'"', "9" * 40),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"{[{["', "{[{["),
    ],
)
def test_what_is_json_here(data: bytes, value: Any) -> None:
    assert decode(data) == value


def test_nesting_64_is_read_and_brackets_in_strings_are_no_nesting() -> None:
    deepest = b"[" * 64 + b"]" * 64
    assert nesting(decode(deepest)) == MAX_NESTING == 64
    assert nesting(decode(b"[{}," + deepest[1:])) == 64
    assert decode(b'["' + b"[{" * 500 + b'"]') == ["[{" * 500]


@given(VALUES)
def test_what_is_written_is_read_back_exactly(value: Any) -> None:
    assert exactly(decode(encode(value))) == exactly(value)


@given(TEXT)
def test_only_what_json_needs_is_escaped(text: str) -> None:
    data = encode([text])
    plain = "".join(char for char in text if char >= " " and char not in '"\\')
    for char in plain:
        assert char.encode() in data
    if plain == text:
        assert data == b'["' + text.encode() + b'"]'


@given(VALUES, VALUES)
def test_embedded_bytes_are_written_as_they_are(value: Any, other: Any) -> None:
    data = json.dumps(value, ensure_ascii=True, indent=1).encode()
    assert encode({"a": embed(data), "b": [other, embed(data)]}) == b'{"a":%b,"b":[%b,%b]}' % (
        data,
        encode(other),
        data,
    )


def canonical(value: Any) -> Any:
    """The oracle of equality: a hashable value in which only what must be equal is equal."""
    if value is None or isinstance(value, bool):
        return ("constant", str(value))
    if isinstance(value, (int, float)):
        return ("number", Fraction(value))
    if isinstance(value, str):
        return ("text", value)
    if isinstance(value, list):
        return ("list", tuple(map(canonical, value)))
    return ("object", frozenset((name, canonical(inner)) for name, inner in value.items()))


def rewritten(value: Any, chance: random.Random) -> Any:
    """An equal value: names shuffled, whole numbers as integers or as floats."""
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: rewritten(value[name], chance) for name in names}
    if isinstance(value, list):
        return [rewritten(inner, chance) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if type(value) is int and int(float(value)) == value and chance.random() < 0.5:
        return float(value)
    return value


@given(VALUES, st.randoms(use_true_random=False))
def test_a_value_equals_itself_written_otherwise(value: Any, chance: random.Random) -> None:
    other = rewritten(value, chance)
    assert same_value(value, other)
    assert same_value(other, value)


SMALL = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "1", "true", 2**53 + 1, float(2**53)]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(SMALL | NUMBERS, SMALL | NUMBERS)
@example({"a": None}, {})
@example([1], [True])
@example({"a": 1}, {"a": True})
@example({"a": [0]}, {"a": [False]})
@example({"a": 1, "b": 2}, {"a": 1})
@example([0, 1], [0])
@example([], {})
@example(2**53 + 1, float(2**53))
def test_equality_is_that_of_json(left: Any, right: Any) -> None:
    assert same_value(left, right) is (canonical(left) == canonical(right))
