"""The command by which the outside tells a run something (spec coordinator 9, wire 7)."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field

from schemas.commands import Command
from schemas.lenient import Text
from schemas.names import trim
from schemas.run_command import RunCommand

INTEGRATION_EVENT = "integration_event"
_NAMELESS = "deepline_event"
_MAX_TYPE_LENGTH = 100
_OTHERS = re.compile("[^A-Za-z0-9_-]+")


class RunSignal(RunCommand):
    """Tell a run that something happened outside. An `integration_event` with a key becomes a child's result."""

    type: Literal["run.signal"]
    event_key: Text = None
    """What it is about; white space around it does not count."""
    event_key_too: Text = Field(None, alias="event_key")
    """Another name of `eventKey`, which counts when that is not there."""
    signal_type: Text = None
    """What kind of signal it is; default: `integration_event_<eventKey>`, or `integration_event` without a key."""
    payload: Any = None
    """What the run gets, any JSON."""


SIGNAL_COMMANDS: tuple[type[Command], ...] = (RunSignal,)


def signal_type(given: str) -> str:
    """The type of a signal as it is used: 1..100 of `A-Za-z0-9_-`."""
    return _OTHERS.sub("_", trim(given)).strip("_")[:_MAX_TYPE_LENGTH] or _NAMELESS
