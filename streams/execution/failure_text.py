"""How a run's failure is told: name, message and 12 lines of stack (spec coordinator 9)."""

from __future__ import annotations

import traceback
from pathlib import Path

STACK_LINES = 12
MAX_MESSAGE_CHARACTERS = 8_000
_OURS = str(Path(__file__).parent)


def describe_failure(error: BaseException) -> str:
    """`Name: message`, and below it the innermost lines of the stack, without the executor's own frames."""
    message = _message(error)
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = f"{message[:MAX_MESSAGE_CHARACTERS]}... ({len(message)} characters)"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame)]
    lines = "".join(traceback.format_list(frames)).splitlines()[-STACK_LINES:]
    heading = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return "\n".join([heading, *(_printable(line) for line in lines)])


def _message(error: BaseException) -> str:
    try:
        return _printable(str(error))
    except BaseException as broken:
        # The run has to end whatever the exception's own code does.
        return f"(its message cannot be read: {type(broken).__name__})"


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OURS)


def _printable(text: str) -> str:
    # A lone surrogate is no UTF-8, so it would make the whole report impossible to send.
    return text.encode(errors="backslashreplace").decode()
