"""The command families that this version serves: topic, commands and machine of each."""

from __future__ import annotations

from dataclasses import dataclass

from agents.machine import Machine
from agents.rate.machine import RateMachine
from agents.run.machine import RunMachine
from schemas.commands import CommandSet
from schemas.rate_commands import RATE_COMMANDS
from schemas.run_commands import RUN_COMMANDS


@dataclass(frozen=True)
class Family:
    """One kind of entity: its command topic, what the topic accepts, and the rules."""

    name: str
    """Stable: part of stored keys."""
    commands: CommandSet
    machine: Machine


FAMILIES: tuple[Family, ...] = (
    Family("run", RUN_COMMANDS, RunMachine()),
    Family("rate", RATE_COMMANDS, RateMachine()),
)
