"""What the user did wrong is said as such: clearly, and not as a fault of runlane."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from streams.cli.main import main
from streams.cli.session import load_settings
from streams.execution.process import load_app
from streams.user_errors import UserError

TWICE = """
from streams.executor import Executor
app = Executor()
for _ in range(2):
    app.run("again")(lambda context: None)
"""


@pytest.mark.parametrize(
    ("source", "last_line"),
    [
        ("import surely_no_such_module", "ModuleNotFoundError: No module named 'surely_no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        (TWICE, "ValueError: the run name 'again' has a function already"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_by_its_own_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, last_line: str
) -> None:
    name = f"jobs_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as refused:
        load_app(f"{name}:app")
    message = refused.value.message
    assert refused.value.exit_code == 1
    assert message.startswith(f"The module {name!r} cannot be imported:\n")
    assert message.splitlines()[-1].startswith(last_line)
    assert f"{name}.py" in message
    assert "importlib" not in message


@pytest.mark.parametrize("place", ["file", "file/below", "/proc", "/dev/null"])
def test_a_data_folder_that_cannot_be_used_is_refused(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as exit_:
        main(["worker", "--data-dir", str(tmp_path / place)])
    assert exit_.value.code == 1
    errors = capsys.readouterr().err
    assert f"The data folder {tmp_path / place} cannot be used: " in errors
    assert "fault of runlane" not in errors


def test_a_log_level_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNLANE_LOG_LEVEL", "loud")
    with pytest.raises(UserError, match=r"RUNLANE_LOG_LEVEL.*'debug', 'info', 'warning' or 'error'"):
        load_settings()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["submit", "n", "--run-id", ""], "--run-id is empty"),
        (["cancel", "r", "--command-id", ""], "--command-id is empty"),
        (["status", ""], "RUN is empty"),
        (["events", "a\udcff"], "RUN is not UTF-8"),
        (["submit", "a\udcff"], "NAME is not UTF-8"),
        (["cancel", "r", "--reason", "a\udcff"], "--reason is not UTF-8"),
    ],
)
def test_names_that_cannot_be_sent_are_refused(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--brokers", "127.0.0.1:1"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {what}")


@pytest.mark.parametrize("arguments", [["submit", "n", "--wait"], ["status", "r"]])
def test_a_broker_that_is_away_is_waited_for_no_longer_than_told(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--brokers", "127.0.0.1:1", "--timeout", "3"])
    assert exit_.value.code == 1
    waiting, error, _ = capsys.readouterr().err.splitlines()
    assert waiting == "waiting for Kafka at 127.0.0.1:1"
    assert error.startswith("error: No Kafka broker answered at 127.0.0.1:1 within 3 s")
