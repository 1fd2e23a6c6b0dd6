"""How a command is sent again: which pauses, and after which answers."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ErrorCode
from schemas.replies import ReplyError
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout, SentCommand
from streams.execution import insistence
from streams.execution.insistence import insist

COMMAND = SentCommand("terminal.set", "c", "runId", "r", "run-commands", 0)


def refused(code: str) -> CommandRefused:
    return CommandRefused(COMMAND, ReplyError(code=code, message="no"))


def silence() -> CommandTimeout:
    return CommandTimeout(COMMAND, waited_s=1, offset=None, replies="", brokers="")


class Coordinator:
    """Answers with what it is given in turn, and notes what it was asked and what was waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, float]] = []
        self.pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        monkeypatch.setattr(insistence.asyncio, "sleep", sleep)

    async def send(self, *, command_id: str, timeout: float) -> str:
        self.asked.append((command_id, timeout))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, **options: Any) -> str:
        return await insist(self.send, "it", **{"timeout_s": 2.0, **options})


async def test_silence_is_asked_again_after_200_500_and_1500_ms_and_then_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = CommandNotDelivered(COMMAND, "away", retriable=True)
    coordinator = Coordinator(monkeypatch, silence(), away, silence(), silence(), silence(), "yes")
    assert await coordinator.ask() == "yes"
    assert coordinator.pauses == [0.2, 0.5, 1.5, 1.5, 1.5]
    assert len({command_id for command_id, _ in coordinator.asked}) == 1
    assert [timeout for _, timeout in coordinator.asked] == [2, 4, 4, 8, 16, 32]


async def test_an_internal_error_is_asked_again_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [refused(ErrorCode.INTERNAL_ERROR) for _ in range(4)]
    coordinator = Coordinator(monkeypatch, *broken, "too late")
    with pytest.raises(CommandRefused):
        await coordinator.ask(command_id="mine")
    assert coordinator.pauses == [0.2, 0.5, 1.5]
    assert coordinator.asked == [("mine", 2.0)] * 4
    healed = Coordinator(monkeypatch, *broken[:3], "yes")
    assert await healed.ask() == "yes"


@pytest.mark.parametrize("code", sorted(set(ErrorCode) - {ErrorCode.INTERNAL_ERROR}))
async def test_any_other_refusal_is_final(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    coordinator = Coordinator(monkeypatch, refused(code))
    with pytest.raises(CommandRefused):
        await coordinator.ask()
    assert not coordinator.pauses


async def test_what_kafka_will_never_take_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch, CommandNotDelivered(COMMAND, "too large", retriable=False))
    with pytest.raises(CommandNotDelivered):
        await coordinator.ask()
    assert not coordinator.pauses
