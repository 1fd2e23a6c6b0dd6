"""Valid commands made wrong: in their JSON, in their bytes, in key, headers and topic.

All of it is chosen by a `random.Random`. Hypothesis has one that it can shrink (`st.randoms()`); with a plain one,
many thousands a second can be made.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

from agents.families import FAMILIES
from schemas.envelope import Headers
from schemas.json_codec import encode
from tests.fuzz.odd_values import (
    COMMAND_IDS,
    HEADER_NAMES,
    HEADER_VALUES,
    KEYS,
    NAMES,
    PARTITIONS,
    VALUES,
    WRONG_KEYS,
    Raw,
    owned,
)
from tests.fuzz.valid_commands import Body, ValidCommand, valid_commands

VALID = valid_commands()
_NAMES = [*NAMES, *sorted({name for valid in VALID for name in valid.fields})]
TOPICS = [family.commands.topic for family in FAMILIES]

Path = tuple[str | int, ...]


class Draft(NamedTuple):
    """A record that is not on its topic yet."""

    topic: str
    """Without prefix."""
    key: bytes | None
    value: bytes | None
    headers: Headers


def right_draft(chance: Random, valid: ValidCommand | None = None) -> Draft:
    """A command that is right in everything but, perhaps, for the state that it meets."""
    valid = valid or chance.choice(VALID)
    key = _key(chance)
    body = valid.body(key, _command_id(chance))
    return Draft(valid.topic, key.encode(), write_json(body), right_headers(chance))


def wrong_draft(chance: Random) -> Draft:
    """A command with one to three things wrong; by chance it may still be right."""
    valid = chance.choice(VALID)
    key, topic, headers = _key(chance), valid.topic, right_headers(chance)
    body = valid.body(key, _command_id(chance))
    key_bytes: bytes | None = key.encode()
    wrong = chance.choice(_WRONG)
    if "key" in wrong:
        key_bytes = chance.choice(WRONG_KEYS)
        if chance.random() < 0.5:
            body[valid.family.commands.id_field] = (key_bytes or b"").decode("utf-8", "replace")
    value: bytes | None = wrong_json(chance, body) if "json" in wrong else write_json(body)
    if "bytes" in wrong:
        value = wrong_bytes(chance, value or b"")
    if "headers" in wrong:
        headers = wrong_headers(chance)
    if "topic" in wrong:
        topic = chance.choice(TOPICS)
    return Draft(topic, key_bytes, value, headers)


_WRONG = (
    ("json",),
    ("bytes",),
    ("key",),
    ("headers",),
    ("topic",),
    ("json", "bytes"),
    ("json", "headers"),
    ("json", "topic"),
    ("bytes", "key"),
    ("key", "headers"),
    ("json", "key", "headers"),
)


def wrong_json(chance: Random, body: Body) -> bytes:
    """The JSON of a command with values removed, renamed, added, doubled, or of another kind."""
    tree = body
    for _ in range(chance.randint(1, 2)):
        ways = list(paths(tree))
        if not ways:
            break
        change = chance.choice(_JSON_CHANGES)
        tree = changed(tree, chance.choice(ways), partial(change, chance))
    return write_json(tree, ascii_only=chance.random() < 0.3)


def wrong_bytes(chance: Random, value: bytes) -> bytes | None:
    """Bytes flipped, cut, put in, doubled, spliced, or in another encoding."""
    at = chance.randint(0, len(value))
    to = min(len(value), at + chance.choice((0, 1, 1, 2, 5, 40, 10_000)))
    return chance.choice(_BYTE_CHANGES)(chance, value, at, to)


def right_headers(chance: Random) -> Headers:
    """A reply address, or none."""
    if chance.random() < 0.3:
        return ()
    address = (
        ("reply-partition", b"%d" % chance.randrange(PARTITIONS)),
        ("correlation-id", chance.randbytes(4)),
    )
    return address if chance.random() < 0.9 else (*reversed(address), ("other", None))


def wrong_headers(chance: Random) -> Headers:
    """Headers of odd names and values, in any order, doubled and missing."""
    return tuple(
        (chance.choice(HEADER_NAMES), chance.choice(HEADER_VALUES)) for _ in range(chance.randint(0, 4))
    )


def one_wrong_value(of_each: int = len(VALUES)) -> Iterator[Draft]:
    """Odd values in the place of every value of every valid command, each of an entity of its own.

    In each place `of_each` values, which are others in the next place.
    """
    values = itertools.cycle(VALUES)
    headers = (("reply-partition", b"1"), ("correlation-id", b"c"))
    for number, valid in enumerate(VALID):
        for place, path in enumerate(paths(valid.body(KEYS[0], "c"))):
            for at, value in enumerate(itertools.islice(values, of_each)):
                key = owned(f"{number}/{place}/{at}")
                body = changed(valid.body(key, "c"), path, partial(_set, value))
                yield Draft(valid.topic, key.encode(), write_json(body), headers)


def write_json(node: Any, *, ascii_only: bool = False) -> bytes:
    """JSON text of a value in which `Raw` text may stand for a value, or for all members of an object."""
    if isinstance(node, Raw):
        return node.text
    if isinstance(node, dict):
        members = [_member(name, inner, ascii_only) for name, inner in node.items()]
        return b"{" + b",".join(members) + b"}"
    if isinstance(node, list):
        return b"[" + b",".join([write_json(inner, ascii_only=ascii_only) for inner in node]) + b"]"
    return _scalar(node, ascii_only)


def paths(node: Any, at: Path = ()) -> Iterator[Path]:
    """The way to each value within a value, at every depth."""
    children: Any = ()
    if isinstance(node, dict):
        children = node.items()
    elif isinstance(node, list):
        children = enumerate(node)
    for name, inner in children:
        yield (*at, name)
        yield from paths(inner, (*at, name))


def changed(node: Any, path: Path, change: Callable[[Any, Any], None]) -> Any:
    """A copy in which `change(parent, name)` was called for the value at the path."""
    name = path[0]
    copy = dict(node) if isinstance(node, dict) else list(node)
    if len(path) == 1:
        change(copy, name)
    else:
        copy[name] = changed(copy[name], path[1:], change)  # type: ignore[index]
    return copy


def _key(chance: Random) -> str:
    """Few different ones, so that commands meet; now and then an odd one."""
    return chance.choice(KEYS[:2]) if chance.random() < 0.7 else chance.choice(KEYS)


def _command_id(chance: Random) -> str:
    beginning = COMMAND_IDS[0] if chance.random() < 0.7 else chance.choice(COMMAND_IDS)
    return beginning + str(chance.randrange(10))


def _member(name: Any, inner: Any, ascii_only: bool) -> bytes:
    if isinstance(name, Raw):
        return name.text
    return _scalar(name, ascii_only) + b":" + write_json(inner, ascii_only=ascii_only)


def _scalar(value: Any, ascii_only: bool) -> bytes:
    return json.dumps(value).encode() if ascii_only else encode(value)


def _set(value: Any, parent: Any, name: Any) -> None:
    parent[name] = value


def _put(chance: Random, parent: Any, name: Any) -> None:
    parent[name] = chance.choice(VALUES)


def _wrap(chance: Random, parent: Any, name: Any) -> None:
    parent[name] = [parent[name]] if chance.random() < 0.5 else {chance.choice(_NAMES): parent[name]}


def _remove(chance: Random, parent: Any, name: Any) -> None:
    del parent[name]


def _rename(chance: Random, parent: Any, name: Any) -> None:
    value = parent.pop(name)
    if isinstance(parent, dict):
        parent[chance.choice(_NAMES)] = value
    else:
        parent.append({chance.choice(_NAMES): value})


def _add(chance: Random, parent: Any, name: Any) -> None:
    if isinstance(parent, dict):
        parent[chance.choice(_NAMES)] = chance.choice(VALUES)
    else:
        parent.append(chance.choice(VALUES))


def _double(chance: Random, parent: Any, name: Any) -> None:
    """The same name twice in an object; which of the two counts depends on the order."""
    if isinstance(parent, list):
        parent.append(parent[name])
        return
    extra = Raw(_member(name, chance.choice(VALUES), False))
    members = dict(parent)
    parent.clear()
    parent.update({extra: None, **members} if chance.random() < 0.5 else {**members, extra: None})


def _swap(chance: Random, parent: Any, name: Any) -> None:
    """Two values change places."""
    if isinstance(parent, dict):
        other = chance.choice(list(parent))
        parent[name], parent[other] = parent[other], parent[name]


_JSON_CHANGES = (_put, _put, _put, _wrap, _remove, _rename, _add, _double, _swap)


def _flip(chance: Random, value: bytes, at: int, to: int) -> bytes:
    if at == len(value):
        return value
    return value[:at] + bytes([value[at] ^ (1 << chance.randrange(8))]) + value[at + 1 :]


def _splice(chance: Random, value: bytes, at: int, to: int) -> bytes:
    other = chance.choice(_OTHERS)
    return value[:at] + other[chance.randint(0, len(other)) :]


_OTHERS = [write_json(valid.body(KEYS[0], "spliced")) for valid in VALID]

_ENCODINGS: tuple[Callable[[bytes], bytes], ...] = (
    lambda value: b"\xef\xbb\xbf" + value,
    lambda value: value.decode("utf-8", "replace").encode("utf-16"),
    lambda value: value.decode("utf-8", "replace").encode("utf-32-le"),
    lambda value: value.decode("utf-8", "replace").encode("latin-1", "replace"),
    lambda value: gzip.compress(value, mtime=0),
    lambda value: b" \t\r\n" * 50 + value + b"\n",
    lambda value: value + value,
    lambda value: value + b"\x00",
    lambda value: json.dumps(value.decode("utf-8", "replace")).encode(),
    lambda value: b"[" + value + b"]",
)

_BYTE_CHANGES: tuple[Callable[[Random, bytes, int, int], bytes | None], ...] = (
    _flip,
    _flip,
    _splice,
    _splice,
    lambda chance, value, at, to: value[:at],
    lambda chance, value, at, to: value[:at] + value[to:],
    lambda chance, value, at, to: value[:to] + value[at:],
    lambda chance, value, at, to: value[:at] + chance.randbytes(chance.randint(1, 4)) + value[to:],
    lambda chance, value, at, to: value[:at] + chance.choice(VALUES).text + value[to:],
    lambda chance, value, at, to: chance.choice(_ENCODINGS)(value),
    lambda chance, value, at, to: None,
    lambda chance, value, at, to: chance.randbytes(chance.randint(0, 30)),
)
