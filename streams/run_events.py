"""Read run events as an observer meets them: also those that a newer version wrote."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from schemas.events import RunEvent


class UnknownEvent(BaseModel):
    """An event whose type or fields this version does not know; `fields` is all of it, as it was sent."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    seq: int
    run_id: str
    type: str
    ts: int | float
    command_id: str | None = None
    fields: dict[str, Any]


AnyRunEvent = RunEvent | UnknownEvent
"""An event of a run; `type` tells which."""

_KNOWN: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)


def parse_event(fields: dict[str, Any]) -> AnyRunEvent:
    """The event that a decoded record stands for. Raises `ValueError` when it is no event at all."""
    try:
        return _KNOWN.validate_python(fields)
    except ValidationError:
        return UnknownEvent.model_validate({**fields, "fields": fields})


def read_event(value: bytes | None) -> AnyRunEvent:
    """The event that a record's value stands for. Raises `ValueError` when it is no event at all."""
    # Not `schemas.json_codec`: what runlane writes nests a command's JSON deeper than a command may.
    fields = orjson.loads(value or b"")
    if not isinstance(fields, dict):
        raise ValueError("an event is a JSON object")
    return parse_event(fields)
