"""Instance ids (spec coordinator 9, wire 4): the vectors come from the JavaScript that defined them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.run.instance_id import instance_id

VECTORS = [
    ("a", "a"),
    ("play/Airports/run/20260101T000000000-DEADBEEF", "play-airports-run-20260101t000000000-deadbeef"),
    ("a/b", "a-b"),
    ("a-b", "a-b"),
    ("__A--b..c__", "__a--b-c__"),
    ("/", "-"),
    ("Zürich ☃ 7", "z-rich-7"),
    ("\u212aelvin", "kelvin"),
    ("\u0130stanbul", "i-stanbul"),
    ("ÀÉÎ", "-"),
    ("😀", "-"),
    ("\0\0\0", "-"),
    ("a" * 100, "a" * 100),
    ("a" * 101, "run-11ujxyg"),
    ("x/" * 51, "run-11xuwpc"),
    ("é" * 101 + "y" * 99, "-" + "y" * 99),
    ("é" * 200, "-"),
    ("😀" + "z" * 100, "run-trz7lc"),
    ("\u0130" + "q" * 100, "run-1r2cfs3"),
    ("日本" + "k" * 120, "run-1y28k24"),
    ("\uffff" + "0" * 120, "run-1nbkzgu"),
    ("", "run-ztntfp"),
]


@pytest.mark.parametrize(("run_id", "expected"), VECTORS, ids=[f"{n}" for n in range(len(VECTORS))])
def test_instance_ids_are_those_of_the_javascript(run_id: str, expected: str) -> None:
    assert instance_id(run_id) == expected


def plain(run_id: str) -> str:
    """The rule, spelled out: 32-bit FNV-1a over 16-bit code units, in base 36."""
    normalized, in_run = "", False
    for char in run_id.lower():
        allowed = char in "abcdefghijklmnopqrstuvwxyz0123456789_-"
        if allowed or not in_run:
            normalized += char if allowed else "-"
        in_run = not allowed
    if 0 < len(normalized) <= 100:
        return normalized
    units = []
    for char in map(ord, run_id):
        units += [char] if char < 0x10000 else [0xD800 + (char - 0x10000 >> 10), 0xDC00 + (char & 0x3FF)]
    value = 0x811C9DC5
    for unit in units:
        value = ((value ^ unit) * 0x01000193) % 2**32
    digits = []
    while value:
        digits.append("0123456789abcdefghijklmnopqrstuvwxyz"[value % 36])
        value //= 36
    return "run-" + "".join(reversed(digits))


long_ids = st.builds(lambda start, rest: start + "x" * 100 + rest, st.text(max_size=5), st.text(max_size=5))


@given(st.text(max_size=30) | long_ids | st.text(alphabet="aB-_/ é😀", max_size=120))
def test_instance_ids_follow_the_rule(run_id: str) -> None:
    assert instance_id(run_id) == plain(run_id)
    assert re.fullmatch("[a-z0-9_-]{1,100}", instance_id(run_id))
