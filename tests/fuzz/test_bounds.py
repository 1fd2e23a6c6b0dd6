"""Input that is small on the wire and large in memory or in the output: what it may cost at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import dead_letters
from schemas.errors import ErrorCode
from streams.batch import MAX_BATCH_OUTPUT_BYTES, MAX_FORWARDED_BYTES, MAX_OUTPUT_BYTES
from streams.ports import OutRecord
from tests.fuzz.fuzzed_lane import MAX_COMMAND_BYTES, FuzzedLane
from tests.fuzz.largest_commands import ADDRESS, FILLINGS, filled
from tests.fuzz.mutations import VALID, Draft, write_json
from tests.fuzz.odd_values import FOREIGN_KEY, KEYS

MAX_PEAK_BYTES = 150 * MAX_COMMAND_BYTES
"""By how much a process may grow while it processes one command of the largest size."""


def test_what_commands_of_the_largest_size_take_in_memory() -> None:
    for name in FILLINGS:
        value = filled(name).value
        assert value is not None
        assert 0.8 * MAX_COMMAND_BYTES < len(value) <= MAX_COMMAND_BYTES
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.largest_commands"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["peakBytes"] < MAX_PEAK_BYTES
    assert set(found["outcomes"].values()) == {"applied", ErrorCode.INVALID_JSON, ErrorCode.OUTPUT_TOO_LARGE}


def test_outputs_that_grow_out_of_what_fits_cost_one_command() -> None:
    lane = FuzzedLane()
    fed = lane.feed(filled("numbers that grow"))
    assert fed.outcome == ErrorCode.OUTPUT_TOO_LARGE
    assert [output.topic for output in fed.outputs] == ["dead-letters", "replies"]
    lane.commit()
    assert set(lane.state()) == {"lane.progress"}


def size(output: OutRecord) -> int:
    """Bytes of a record."""
    headers = sum(len(name) + len(value or b"") for name, value in output.headers or ())
    return len(output.key or b"") + len(output.value or b"") + headers


@pytest.mark.parametrize(
    "draft",
    [
        Draft("run-commands", b"k" * 5_000_000, b"{}", ()),
        Draft("run-commands", KEYS[0].encode(), b"[" * 20_000_000, ADDRESS),
        Draft("run-commands", KEYS[0].encode(), None, (("h" * 1000, b"v"),) * 6000),
        Draft("run-commands", KEYS[0].encode(), b"x", (("h", b"v" * 9_000_000), *ADDRESS)),
        Draft("run-commands", b"k" * 3_000_000, b"v" * 3_000_000, (("h", b"v" * 3_000_000),)),
    ],
    ids=["key", "value", "many headers", "header", "all of it"],
)
def test_a_dead_letter_fits_whatever_it_is_of(draft: Draft) -> None:
    lane = FuzzedLane()
    fed = lane.feed(draft)
    assert fed.is_dead
    assert size(fed.outputs[0]) <= 9 * 1024 * 1024
    assert dict(fed.outputs[0].headers or ())[dead_letters.CODE] == fed.outcome.encode()


def test_a_command_that_is_too_large_to_be_forwarded_is_a_dead_letter() -> None:
    value = next(write_json(valid.body(FOREIGN_KEY.decode(), "c")) for valid in VALID)
    lane = FuzzedLane()
    headers = (("h", b"v" * MAX_FORWARDED_BYTES), *ADDRESS)
    fed = lane.feed(Draft(VALID[0].topic, FOREIGN_KEY, value, headers))
    assert fed.outcome == ErrorCode.OUTPUT_TOO_LARGE
    assert lane.feed(Draft(VALID[0].topic, FOREIGN_KEY, value, ADDRESS)).outcome == "forwarded"


def test_a_batch_ends_before_its_outputs_are_many_times_its_limit() -> None:
    lane = FuzzedLane()
    valid = next(valid for valid in VALID if valid.fields["type"] == "events.append")
    line = {"type": "log", "line": "x" * 1_000_000}
    lane.feed(
        Draft(valid.topic, KEYS[0].encode(), write_json(valid.body(KEYS[0], "c") | {"event": line}), ())
    )
    question = next(valid for valid in VALID if valid.fields == {"type": "events.list"})
    body = write_json(question.body(KEYS[0], "q"))
    batches = lane.batches
    answered = sum(
        size(lane.feed(Draft(question.topic, KEYS[0].encode(), body, ADDRESS)).outputs[0]) for _ in range(100)
    )
    assert answered > 5 * MAX_BATCH_OUTPUT_BYTES
    assert lane.batches - batches >= answered // (MAX_BATCH_OUTPUT_BYTES + 2 * MAX_OUTPUT_BYTES)
