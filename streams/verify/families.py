"""Every command family that is verified: one entry for each, and nothing else has to know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.verify.command_rules import COMMAND, FORWARD
from streams.verify.dead_letter_log import DEAD_LETTER
from streams.verify.family import VerifiedFamily
from streams.verify.findings import Rule
from streams.verify.grants import FENCING
from streams.verify.origin_rules import ORIGIN
from streams.verify.rate.family import RateFamily
from streams.verify.reading import PARTITION, SCHEMA
from streams.verify.reply_rules import REPLY
from streams.verify.run.family import RunFamily
from streams.verify.state_log import WATERMARK

VERIFIED_FAMILIES: tuple[Callable[[], VerifiedFamily[Any]], ...] = (RunFamily, RateFamily)

RULES: tuple[Rule, ...] = (
    COMMAND,
    FORWARD,
    DEAD_LETTER,
    ORIGIN,
    *(rule for family in VERIFIED_FAMILIES for rule in family().rules),
    FENCING,
    REPLY,
    WATERMARK,
    PARTITION,
    SCHEMA,
)
"""All rules, in the order in which they are shown."""
