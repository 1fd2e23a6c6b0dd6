"""The executor's parts that need no Kafka: derived command ids, the offset ledger, failure texts."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.dispatches import Dispatch
from schemas.envelope import MAX_COMMAND_ID_CHARACTERS
from schemas.json_codec import require_faithful
from streams.execution.call_terms import CallTerms
from streams.execution.command_ids import CommandIds
from streams.execution.failure_text import MAX_MESSAGE_CHARACTERS, describe_failure
from streams.execution.offset_ledger import OffsetLedger


def ids(run_id: str, instance_id: str, attempt: int = 1) -> CommandIds:
    fields = {"name": "n", "dispatchedAt": 0, "commandId": "c"}
    return CommandIds(Dispatch(runId=run_id, instanceId=instance_id, attempt=attempt, **fields))


@pytest.mark.parametrize("instance_id", ["i", "i" * 100 + "-retry-12", "i" * 5000, "数" * 512])
def test_command_ids_fit_and_differ_by_run_instance_attempt_and_position(instance_id: str) -> None:
    runs = ["r", "R", "r" * 512, "数" * 170]
    made = [ids(run, instance_id, attempt) for run in runs for attempt in (1, 2)]
    names = [each.event(10**9) for each in made] + [each.end(2) for each in made]
    assert len(set(names)) == len(names)
    assert all(1 <= len(name) <= MAX_COMMAND_ID_CHARACTERS for name in names)
    assert ids("r", instance_id).event(7) == ids("r", instance_id).event(7)


def test_a_position_is_read_back_only_from_the_execution_s_own_event_ids() -> None:
    own = ids("r", "i")
    assert own.position_of(own.event(12)) == 12
    others = [ids("r", "i", 2).event(5), ids("q", "i").event(5), own.end(1), "timer:x", None, 5]
    assert [own.position_of(other) for other in others] == [0] * len(others)


def test_the_ledger_commits_in_order_whatever_the_order_of_finishing() -> None:
    choice = random.Random(3)
    ledger, offsets = OffsetLedger(), sorted(choice.sample(range(5, 500), 100))
    assert ledger.to_commit() is None
    waiting, finished = list(offsets), set()
    taken: list[int] = []
    while waiting or taken:
        if waiting and (not taken or choice.random() < 0.5):
            taken.append(waiting.pop(0))
            ledger.take(taken[-1])
        else:
            offset = taken.pop(choice.randrange(len(taken)))
            ledger.finish(offset)
            finished.add(offset)
        if (upto := ledger.to_commit()) is not None:
            assert finished >= {offset for offset in offsets if offset < upto}
            assert upto not in finished
            ledger.committed(upto)
            assert ledger.to_commit() is None
        assert ledger.busy is bool(taken)
    ledger.finish(offsets[0])
    assert not ledger.busy


def test_a_failure_whose_text_cannot_be_made_is_told_by_its_type() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise KeyError("field")

    assert describe_failure(Unreadable()) == "Unreadable: (its message cannot be read: KeyError)"


def test_a_failure_without_a_message_or_with_a_huge_one_is_told_within_bounds() -> None:
    assert describe_failure(ValueError()) == "ValueError"
    text = describe_failure(ValueError("x" * 1_000_000))
    assert text.startswith("ValueError: xxx")
    assert text.endswith("(1000000 characters)")
    assert len(text) < MAX_MESSAGE_CHARACTERS + 100


@pytest.mark.parametrize("value", [float("nan"), [None, {"a": (1.0, float("-inf"))}], datetime.now(UTC), {1}])
def test_what_json_would_silently_change_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        require_faithful({"result": value})
    require_faithful({"result": [None, 1.5, {"a": "null"}]})


@pytest.mark.parametrize(
    ("terms", "error", "said"),
    [
        ({"on_failure": "retry"}, ValueError, "on_failure is 'keep' or 'release', not 'retry'"),
        ({"lease_s": 0}, ValueError, "lease_s is 1 to 3,600 seconds, not 0"),
        ({"lease_s": float("nan")}, ValueError, "lease_s is 1 to 3,600 seconds, not nan"),
        ({"lease_s": "x"}, TypeError, "lease_s is a number of seconds, not 'x'"),
    ],
)
def test_a_call_on_wrong_terms_says_what_would_be_right(
    terms: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        CallTerms(**terms)
