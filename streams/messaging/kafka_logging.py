"""What the native client logs, without its repetitions."""

from __future__ import annotations

import logging
import re
import time

_REPEAT_AFTER_S = 30.0
_VARIABLE = re.compile(r"\[[^]]*\]|\d+")


class WithoutRepeats(logging.Filter):
    """Lets the same message pass once in 30 s, whatever its numbers and the client that says it.

    With a broker away every client reports every attempt to connect, several times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this is not a repetition."""
        kind, now = _VARIABLE.sub("", record.getMessage()), time.monotonic()
        if now - self._said_at.get(kind, -_REPEAT_AFTER_S) < _REPEAT_AFTER_S:
            return False
        self._said_at[kind] = now
        return True


kafka_log = logging.getLogger("runlane.kafka")
"""The logger that is given to native clients."""
kafka_log.addFilter(WithoutRepeats())
