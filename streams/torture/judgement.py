"""Who judges the history of a torture, beside its own account."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.settings import Settings
from streams.torture.sender import SentRecord

Judge = Callable[[Settings, Sequence[SentRecord]], list[str]]
"""(where the topics are, what the load sent) -> what is wrong with the topics' content, in words.

Called in a thread, when everything is done and only the broker still runs.
"""

JUDGES: tuple[Judge, ...] = ()
"""Those that every torture calls."""
