"""What comes from outside can neither drive a terminal nor forge a line."""

from __future__ import annotations

import logging

from schemas.events import LogEvent
from schemas.run_results import SubmitResult
from streams.cli.executor_commands import _LineFormatter
from streams.cli.run_commands import _submitted
from streams.cli.run_views import event_line
from streams.terminal_text import one_line, printable

FORGED = "x\x1b[2J\n    2  00:00:00.000  terminal  completed"


def test_an_event_of_several_lines_is_one_row() -> None:
    event = LogEvent(seq=1, runId="r", type="log", ts=0, commandId="c", line=FORGED)
    first, second = event_line(event).plain.splitlines()
    assert first.endswith("log       x\\x1b[2J")
    assert second.startswith(" " * 31)


def test_a_run_id_cannot_forge_the_answer_to_a_submit() -> None:
    answer = SubmitResult(runId=FORGED, instanceId="i", status="running", seq=1)
    assert _submitted(answer).plain.startswith("submitted x\\x1b[2J\\n    2")


def test_text_cannot_turn_the_direction_of_writing_nor_end_a_line_by_another_character() -> None:
    assert one_line("a\u202eb\u2066c\u2028d\u2029e") == "a\\u202eb\\u2066c\\u2028d\\u2029e"
    assert printable("é 日本 \u05d0\tx\n") == "é 日本 \u05d0\tx\n"


def test_a_line_of_the_executor_s_log_is_one_line() -> None:
    record = logging.LogRecord("runlane", logging.INFO, "", 0, "run %s: done", (FORGED,), None)
    text = _LineFormatter("%(levelname)s %(message)s").format(record)
    assert text.startswith("INFO run x\\x1b[2J\\n    2")
    assert text.endswith(": done")
