"""How a command family takes part in the simulation: by a module in this package that has a `SIMULATED`.

Such a module is found; nothing else has to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from agents.families import FAMILIES, Family
from tests.simulation import families
from tests.simulation.partition_log import LogRecord

Draft = tuple[str, dict[str, Any]]
"""(key, body): a command without its `commandId`."""


class Answer(NamedTuple):
    """A command that was accepted, as the client learned from the reply."""

    key: str
    command_id: str
    result: dict[str, Any]


Answered = Callable[[], list[Answer]]
"""The newest answers that clients can read."""

Committed = dict[str, list[list[LogRecord]]]
"""Topic, without prefix -> the committed records of each partition, in order; no heal records."""


@dataclass(frozen=True)
class SimulatedFamily:
    """One family: what clients send, and what always holds for its outputs."""

    name: str
    """Of the family in `agents.families`."""
    key_prefix: str
    """Keys are made of this and a number."""
    draft: Callable[[Random, Sequence[str], Answered], Draft]
    """A command for one of the keys."""
    invariants: Callable[[Committed], Iterator[str]]
    """What is wrong with the outputs, one sentence each."""

    @property
    def family(self) -> Family:
        """The family itself."""
        return next(family for family in FAMILIES if family.name == self.name)


def simulated_families() -> list[SimulatedFamily]:
    """All families that take part, by the order of their modules' names."""
    found = []
    for module in sorted(pkgutil.iter_modules(families.__path__), key=lambda module: module.name):
        loaded = importlib.import_module(f"{families.__name__}.{module.name}")
        if hasattr(loaded, "SIMULATED"):
            found.append(loaded.SIMULATED)
    return found
