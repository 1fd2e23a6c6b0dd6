"""How a transaction is recognised in the partitions that it wrote to (decision 10).

The first record of a transaction in a partition has the header `runlane.transaction`: the transaction's own name
and, when it has dead letters, where the first of them came from. Dead letters have no such header, since their
headers are public: they are recognised by where they came from.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from schemas import dead_letters
from schemas.envelope import Headers
from schemas.topics import DEAD_LETTERS, REPLIES, TOPICS
from streams.ports import LoggedRecord, OutRecord

TRANSACTION = "runlane.transaction"
"""The header; its value is one or two names in UTF-8, with a blank between them."""

_WITH_HEADER = frozenset({REPLIES.name, *(name for name, spec in TOPICS.items() if spec.exclusive)}) - {
    DEAD_LETTERS.name
}


def own_name(partition: int, index: int, opening: str, number: int) -> str:
    """Name of a transaction: lane, index of the transactional id, the lane's opening, number within it."""
    return f"{partition}-{index}-{opening}-{number}"


def writer(names: frozenset[str], partition: int) -> int | None:
    """Index of the transactional id of lane `partition` that wrote a transaction; None when it is not to be told."""
    own = _own(names, partition)
    return None if own is None else own[0]


def is_before(names: frozenset[str], others: frozenset[str], partition: int) -> bool:
    """Whether the same opening of lane `partition` made the transaction with `names` before the one with `others`."""
    own, other = _own(names, partition), _own(others, partition)
    return own is not None and other is not None and own[1] == other[1] and own[2] < other[2]


def named(name: str, outputs: Sequence[OutRecord]) -> tuple[bytes, list[OutRecord]]:
    """The header's value for a transaction of that name, and its outputs with it where it belongs."""
    records = list(outputs)
    seen: set[tuple[str, int]] = set()
    first: list[int] = []
    for position, output in enumerate(records):
        at = (output.topic, output.partition)
        if at not in seen:
            seen.add(at)
            if output.topic == DEAD_LETTERS.name:
                name = f"{name} {_origin(output.headers or ())}"
            elif output.topic in _WITH_HEADER:
                first.append(position)
    value = name.encode()
    for position in first:
        output = records[position]
        records[position] = replace(output, headers=[*(output.headers or ()), (TRANSACTION, value)])
    return value, records


def names_in(topic: str, headers: Headers) -> frozenset[str]:
    """The names by which a record's transaction is recognised; none when no lane wrote it."""
    if topic == DEAD_LETTERS.name:
        origin = _origin(headers)
        return frozenset([origin]) if origin else frozenset()
    # Of headers that a client sent along, ours is the last.
    for name, value in reversed(headers):
        if name == TRANSACTION and value is not None:
            return frozenset(value.decode(errors="replace").split(" "))
    return frozenset()


def names_of(record: LoggedRecord) -> frozenset[str]:
    """The names by which the transaction of a record in the log is recognised."""
    return names_in(record.place.topic, record.headers)


def _own(names: frozenset[str], partition: int) -> tuple[int, str, int] | None:
    """Index of the transactional id, opening and number, as `own_name` put them together."""
    for name in names:
        lane, _, rest = name.partition("-")
        if lane == str(partition) and rest:
            index, opening, number = rest.split("-")
            return int(index), opening, int(number)
    return None


def _origin(headers: Headers) -> str:
    """Where a dead letter came from; the last header of a name is ours."""
    found = dict(headers)
    parts = [found.get(name) for name in (dead_letters.TOPIC, dead_letters.OFFSET, dead_letters.TIMESTAMP)]
    return ":".join(part.decode(errors="replace") for part in parts if part is not None)
