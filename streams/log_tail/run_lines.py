"""Which lines of a log are a run's, and what they say (spec coordinator 9)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from schemas.envelope import MAX_KEY_BYTES
from schemas.json_codec import InvalidJsonError, decode, encode

MAX_LINES = 100
"""Of one run, of one delivery; of more, the last ones."""
MAX_LINE_BYTES = 32 * 1024

# Bounded, so that a hostile line does not cost the square of its length.
_PREFIXED = re.compile(rf"\[deepline-run:([^\]]{{1,{MAX_KEY_BYTES}}})\]\s*(.*)", re.DOTALL)
_RUN_ID = re.compile(r"\bplay/[^/\s]+/run/[0-9a-zTt-]+")
_PERF_TRACE = "[perf-trace]"


class RunLine(NamedTuple):
    """A line of a run's log."""

    run_id: str
    number: int
    """Its place among all lines of the delivery, from 0."""
    text: str


def run_lines(delivery: bytes) -> list[RunLine]:
    """The lines of a delivery, the value of one record, that are runs'; at most 100 of each run, in their order.

    A delivery is JSON with the lines of one event or of a list of events, in `logs` (texts, or objects with a
    `message`) and `exceptions`; or one object with a `message`; or else plain text, line by line.
    """
    found: defaultdict[str, list[RunLine]] = defaultdict(list)
    for number, line in enumerate(_lines(delivery)):
        parsed = parse_line(line)
        if parsed is not None:
            found[parsed[0]].append(RunLine(parsed[0], number, parsed[1]))
    return sorted(
        (line for lines in found.values() for line in lines[-MAX_LINES:]), key=lambda one: one.number
    )


def parse_line(line: str) -> tuple[str, str] | None:
    """A line's run and text: `[deepline-run:<run id>] text`, or a line that names a run; None for any other.

    Traces of performance are not logs. A text over 32 KiB is cut.
    """
    if _PERF_TRACE in line:
        return None
    prefixed = _PREFIXED.search(line)
    if prefixed is not None:
        run_id, text = prefixed[1], prefixed[2].strip() or line
    else:
        named = _RUN_ID.search(line)
        if named is None:
            return None
        run_id, text = named[0], line
    return (run_id, _cut(text)) if len(run_id.encode()) <= MAX_KEY_BYTES else None


def _lines(delivery: bytes) -> Iterator[str]:
    text = delivery.decode(errors="replace")
    try:
        body = decode(delivery)
    except InvalidJsonError:
        body = None
    events = body if isinstance(body, list) else [body]
    if not all(isinstance(event, dict) for event in events):
        lines: Iterable[str] = text.splitlines()
    else:
        lines = (line for event in events for line in _lines_of(event))
    return (stripped for line in lines if (stripped := line.strip()))


def _lines_of(event: dict[str, Any]) -> Iterator[str]:
    if "logs" not in event and "exceptions" not in event:
        yield from _messages(event)
        return
    for log in _listed(event, "logs"):
        if isinstance(log, str):
            yield log
        elif isinstance(log, dict):
            yield from _messages(log)
    for exception in _listed(event, "exceptions"):
        yield _as_text(exception)


def _messages(log: dict[str, Any]) -> Iterator[str]:
    message = log.get("message")
    if isinstance(message, list):
        yield " ".join(_as_text(part) for part in message)
    elif isinstance(message, str):
        yield message


def _listed(event: dict[str, Any], name: str) -> list[Any]:
    value = event.get(name)
    return value if isinstance(value, list) else []


def _as_text(part: Any) -> str:
    return part if isinstance(part, str) else encode(part).decode()


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_LINE_BYTES:
        return text
    return f"{data[:MAX_LINE_BYTES].decode(errors='ignore')} ... ({len(data)} bytes)"
