"""How dead letters look to people and to machines."""

from __future__ import annotations

from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from schemas import dead_letters as headers_of
from streams.cli.output import facts, json_text, size
from streams.cli.run_views import moment
from streams.dead_letter_box import DeadLetter, Replayed
from streams.terminal_text import printable

_SHOWN_BYTES = 4096
_HEX_COLUMNS = 16
_TABLE_WIDTH = 110


def summary(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for machines, without headers and value."""
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "code": letter.code,
        "message": letter.message,
        "topic": letter.topic,
        "originalPartition": _number(letter.text(headers_of.PARTITION)),
        "originalOffset": _number(letter.text(headers_of.OFFSET)),
        "originalTimestamp": _number(letter.text(headers_of.TIMESTAMP)),
        **bytes_json("key", letter.key),
        "valueBytes": _number(letter.left_out_bytes) if letter.left_out_bytes else letter.value_bytes,
        "notReplayable": letter.why_not_replayable(),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes under a name as text, exactly; those that are no UTF-8 in hex under `<name>Hex`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Hex": None if data is None else data.hex()}


def letters_view(letters: list[DeadLetter], prefix: str, width: int) -> RenderableType:
    """Dead letters beneath each other, in a table when there is room; `prefix` is left out of topics."""
    return _table(letters, prefix) if width >= _TABLE_WIDTH else _blocks(letters, prefix)


def _table(letters: list[DeadLetter], prefix: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("place", no_wrap=True, style="bold")
    table.add_column("time", no_wrap=True)
    table.add_column("code", style="red", no_wrap=True)
    table.add_column("from", overflow="fold", min_width=20)
    table.add_column("key", overflow="fold", max_width=24)
    table.add_column("message", overflow="fold", ratio=1)
    for letter in letters:
        table.add_row(
            letter.place,
            moment(letter.timestamp),
            Text(printable(letter.code)),
            Text(printable(letter.original_place.removeprefix(prefix))),
            _bytes_text(letter.key),
            Text(printable(letter.message)),
        )
    return table


def _blocks(letters: list[DeadLetter], prefix: str) -> Group:
    blocks: list[RenderableType] = []
    for letter in letters:
        first = Text.assemble(
            (letter.place, "bold"),
            f"  {moment(letter.timestamp)}  ",
            (printable(letter.code), "red"),
            f"  {printable(letter.original_place.removeprefix(prefix))}  key ",
            _bytes_text(letter.key),
        )
        blocks += [first, Padding(Text(printable(letter.message), style="dim"), (0, 0, 0, 4))]
    return Group(*blocks)


def letter_view(letter: DeadLetter) -> RenderableType:
    """All of one dead letter."""
    known: dict[str, object] = {
        "place": letter.place,
        "time": moment(letter.timestamp),
        "code": Text(printable(letter.code), style="red"),
        "message": Text(printable(letter.message)),
        "from": Text(printable(letter.original_place)),
        "key": _bytes_text(letter.key),
    }
    if reason := letter.why_not_replayable():
        known["replay"] = Text(f"not possible: {printable(reason)}", style="yellow")
    parts: list[RenderableType] = [facts(known), Text("headers", style="bold")]
    if letter.own_headers:
        parts.append(
            facts({f"  {printable(name)}": _bytes_text(value) for name, value in letter.own_headers})
        )
    else:
        parts.append(Text("  none", style="dim"))
    left_out = letter.left_out_bytes
    how_large = "" if letter.value_bytes is None else f" ({size(letter.value_bytes)})"
    parts.append(Text(f"value{how_large}", style="bold"))
    parts.append(
        Text(f"  left out: {left_out} bytes", style="dim") if left_out else _value_view(letter.value)
    )
    if letter.traceback is not None:
        parts += [Text("traceback", style="bold"), Text(printable(letter.traceback))]
    return Group(*parts)


def _value_view(value: bytes | None) -> RenderableType:
    if not value:
        return Text("  none" if value is None else "  empty", style="dim")
    try:
        return json_text(orjson.loads(value))
    except ValueError:
        pass
    rows = []
    for at in range(0, min(len(value), _SHOWN_BYTES), _HEX_COLUMNS):
        part = value[at : at + _HEX_COLUMNS]
        rows.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_COLUMNS}} {_ascii(part)}")
    if len(value) > _SHOWN_BYTES:
        rows.append(f"... and {len(value) - _SHOWN_BYTES:,} bytes more; --json has all of them")
    return Text("\n".join(rows))


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _bytes_text(data: bytes | None) -> Text:
    if data is None:
        return Text("-", style="dim")
    try:
        return Text(printable(data.decode()))
    except UnicodeDecodeError:
        return Text(f"0x{data.hex()}", style="dim")


def sent_json(item: Replayed) -> dict[str, Any]:
    """A record that was sent again, for machines."""
    return {
        "place": item.letter.place,
        "topic": item.topic,
        "partition": item.partition,
        "offset": item.offset,
    }


def sent_view(sent: list[Replayed]) -> RenderableType:
    """Records that were sent again, a line each."""
    lines = [
        Text.assemble(
            ("sent ", "green"),
            (item.letter.place, "bold"),
            f" to {item.topic}[{item.partition}]@{item.offset}",
        )
        for item in sent
    ]
    return Group(*lines)
