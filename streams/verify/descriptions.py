"""More about the records that a report names: whose they are, and which command made them."""

from __future__ import annotations

from collections.abc import Mapping

from agents.tables import Table
from schemas.json_codec import InvalidJsonError, decode
from schemas.topics import STATE_CHANGELOG
from streams.verify.families import VERIFIED_FAMILIES
from streams.verify.findings import Place
from streams.verify.log_source import LogSource


class Descriptions:
    """Reads the named records again, one by one: there are few."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._tables = {table.name: table for family in VERIFIED_FAMILIES for table in family().state_tables}

    def __call__(self, place: Place) -> Mapping[str, str]:
        """`key` (of the changelog: the table and the key's parts) and `commandId`, where there is one."""
        record = self._source.fetch(place)
        if record is None:
            return {}
        key, value = record.key() or b"", record.value() or b""
        about = {"key": self._state_key(key) if place.topic == STATE_CHANGELOG.name else _text(key)}
        try:
            body = decode(value)
        except InvalidJsonError:
            return about
        command_id = body.get("commandId") if isinstance(body, dict) else None
        return {**about, "commandId": command_id} if isinstance(command_id, str) else about

    def _state_key(self, key: bytes) -> str:
        name = _text(key.partition(b"\0")[0])
        table: Table[object] | None = self._tables.get(name)
        if table is None:
            return name
        try:
            return " ".join([name, *(str(part) for part in table.parts(key))])
        except (ValueError, IndexError):
            return name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
