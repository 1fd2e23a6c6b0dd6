"""Commands of the largest size, filled with what takes the most memory for its bytes.

`python -m tests.fuzz.largest_commands` processes each of them on a lane, and prints as JSON what became of each and by
how many bytes the process grew at its peak.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable

from tests.fuzz.fuzzed_lane import MAX_COMMAND_BYTES, FuzzedLane
from tests.fuzz.mutations import VALID, Draft, write_json
from tests.fuzz.odd_values import KEYS, Raw

ADDRESS = (("reply-partition", b"1"), ("correlation-id", b"c"))

FILLINGS: dict[str, Callable[[int], bytes]] = {
    "lists": lambda size: b"[" + b",".join([b"[]"] * (size // 3)) + b"]",
    "objects": lambda size: b"[" + b",".join([b"{}"] * (size // 3)) + b"]",
    "small objects": lambda size: b"[" + b",".join([b'{"":0}'] * (size // 7)) + b"]",
    "numbers": lambda size: b"[" + b",".join([b"7"] * (size // 2)) + b"]",
    "numbers that grow": lambda size: b"[" + b",".join([b"1e15"] * (size // 5)) + b"]",
    "long numbers": lambda size: b"[" + b"1" * size + b"]",
    "different names": lambda size: (
        b"{" + b",".join([b'"%07x":1' % number for number in range(size // 13)]) + b"}"
    ),
    "one name": lambda size: b"{" + b",".join([b'"n":[]'] * (size // 7)) + b"}",
    "openers": lambda size: b"[" * size,
    "nesting": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "objects in objects": lambda size: b'{"":' * (size // 6) + b"0" + b"}" * (size // 6),
    "escapes": lambda size: b'"' + b"\\u0001" * (size // 6) + b'"',
    "surrogate pairs": lambda size: b'"' + b"\\ud83d\\ude00" * (size // 12) + b'"',
    "wide text": lambda size: b'"' + b"\xf0\x9f\x98\x80" * (size // 4) + b'"',
}


def filled(name: str) -> Draft:
    """The first command that has a field for any JSON, with a value of nearly the largest size in it."""
    # The command's other fields take the rest.
    valid = next(valid for valid in VALID if "params" in valid.fields)
    body = valid.body(KEYS[0], "c") | {"params": Raw(FILLINGS[name](MAX_COMMAND_BYTES - 2000))}
    return Draft(valid.topic, KEYS[0].encode(), write_json(body), ADDRESS)


def main() -> None:
    """Process all of them, and say what it cost."""
    at_start = _peak()
    outcomes = {}
    for name in FILLINGS:
        outcomes[name] = FuzzedLane().feed(filled(name)).outcome
    print(json.dumps({"outcomes": outcomes, "peakBytes": _peak() - at_start}))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
