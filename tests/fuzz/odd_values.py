"""What nobody should send: JSON texts that readers trip over, odd keys, ids, header names and header values."""

from __future__ import annotations

from typing import NamedTuple

from streams.partitioner import partition_for

PARTITIONS = 4
PARTITION = 0
"""The one whose lane is fuzzed."""


class Raw(NamedTuple):
    """Text that stands in a JSON value as it is, be it JSON or not."""

    text: bytes


def nested(depth: int, opener: bytes = b"[", closer: bytes = b"]", core: bytes = b"") -> Raw:
    """Brackets in brackets."""
    return Raw(opener * depth + core + closer * depth)


NUMBERS = [
    Raw(text)
    for text in (
        b"0 -1 1 2 500 501 1000 30000 30001 2147483648 4294967296 9007199254740993"
        b" 4611686018427387904 4611686018427387905 9223372036854775807 -9223372036854775808"
        b" 9223372036854775808 18446744073709551615 18446744073709551616 -9223372036854775809"
        b" -0 -0.0 0.1 1.0 1.5 1e0 1E+2 1e15 1e-400 1e308 1.8e308 1e309 -1e400 1e99999999999999999999"
        b" 01 +1 .5 1. 1e 0x10 1_000 NaN Infinity -Infinity nan --1"
    ).split()
] + [Raw(b"9" * 400), Raw(b"0." + b"1" * 400), Raw(b"1" + b"0" * 5000)]

STRINGS = [
    Raw(b'"' + text + b'"')
    for text in (
        b"",
        b" ",
        b"text",
        b"running",
        b"completed",
        b"log",
        b"terminal",
        b"run.submit",
        b"\\u0000",
        b"\\u0001\\u0002",
        b"\\ud800",
        b"\\udc00\\ud800",
        b"\\ud83d\\ude00",
        b"\\u2028\\u2029",
        b"\\/",
        b"\\x41",
        b"\\u12",
        b"\\",
        b"a\x00b",
        b"a\nb",
        b"\x7f",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xef\xbb\xbf",
        b"e\xcc\x81",
        b"\xe2\x80\xae",
        b"__proto__",
        b"x" * 201,
        b"\xf0\x9f\x98\x80" * 200,
        b"\\u0000" * 600,
        b"x" * 3000,
    )
]

OTHERS = [
    Raw(text)
    for text in (
        b"",
        b"null",
        b"true",
        b"false",
        b"True",
        b"nul",
        b"undefined",
        b"[]",
        b"{}",
        b"[[]]",
        b"[null]",
        b"{}{}",
        b'{"":""}',
        b'{"type":"log"}',
        b'{"type":"log","line":"x"}',
        b'{"type":["log"]}',
        b'{"type":{},"line":null}',
        b'{"type":"terminal","status":"completed"}',
        b'{"type":"log","type":"status","line":"x","status":"y"}',
        b'{"a":1,}',
        b"[1,]",
        b"/**/1",
        b"'x'",
        b'"unfinished',
        b'{"a"',
        b"]",
        b"}",
        b",",
        b":",
        b"\x00",
    )
]

NESTINGS = [
    *(nested(depth) for depth in (2, 30, 61, 62, 63, 64, 65, 200, 5000)),
    *(nested(depth, b'{"a":', b"}", b"1") for depth in (2, 61, 62, 63, 64, 5000)),
    nested(5000, closer=b""),
    nested(40, b'[{"":', b"}]", b"1"),
]

VALUES = [*NUMBERS, *STRINGS, *OTHERS, *NESTINGS]


def owned(prefix: str) -> str:
    """A key that begins so and belongs to the fuzzed partition."""
    key, number = prefix, 0
    while partition_for(key.encode(), PARTITIONS) != PARTITION:
        key, number = f"{prefix}{number}", number + 1
    return key


KEYS = [
    owned(prefix)
    for prefix in (
        "run",
        "other",
        "a\0b",
        "\1\2",
        "é",
        "e\u0301",
        "\U0001f600",
        " ",
        '"',
        "\x7f\n",
        "Ünïcode/Run #1",
        "timer:wait:1",
        "k" * 480,
        "\1" * 480,
    )
]
"""Right keys of the fuzzed partition, most of them such as no one would choose."""

FRESH_KEY = owned("fresh")
"""A right key of the fuzzed partition that no fuzzed command names."""

FOREIGN_KEY = next(
    b"elsewhere%d" % number
    for number in range(100)
    if partition_for(b"elsewhere%d" % number, PARTITIONS) != PARTITION
)
"""A right key that another partition owns."""

WRONG_KEYS = [
    FOREIGN_KEY,
    None,
    b"",
    b"\xff",
    b"k" * 513,
    b"\xed\xa0\x80",
    b"\xc0\x80",
    KEYS[0].upper().encode(),
    b" run",
]

NAMES = ["", "x", "é", "\0", "\ufeff", "n" * 300, "commandId", "seq", "__proto__"]
"""Names of members that a command has not, or has already."""

COMMAND_IDS = ["c", "\0", "é" * 199, "\U0001f600" * 199, " ", "c\0d", "\1", '"' * 199]
"""Beginnings of right ids of commands, most of them such as no one would choose."""

HEADER_NAMES = [
    "reply-partition",
    "correlation-id",
    "Reply-Partition",
    "correlation-id\0",
    "\ufffd",
    "",
    "runlane.error.code",
    "traceparent",
    "x" * 300,
]

HEADER_VALUES = [
    None,
    b"",
    b"0",
    b"3",
    b"4",
    b"00000",
    b"000000",
    b"-1",
    b" 1",
    b"1 ",
    b"+1",
    b"1.0",
    b"0x1",
    "٣".encode(),
    "²".encode(),
    b"99999",
    b"\xff\x00",
    b"c" * 200,
    b"c" * 201,
]
