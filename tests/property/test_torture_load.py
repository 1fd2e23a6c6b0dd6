"""The load of a torture: the same for the same seed, and each command leaves the proof that it announces."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents.families import FAMILIES
from schemas.dispatches import Dispatch
from schemas.envelope import EnvelopeError, read_envelope
from schemas.topics import RUN_DISPATCH, RUN_EVENTS
from streams.torture import executed_runs
from streams.torture.generators import GENERATORS
from streams.torture.load import LoadGenerator, Proof
from streams.torture.run_load import RunLoad
from tests.run_lane import RunLane
from tests.small_lane import SmallLane

COMMANDS = 600
MAX_BYTES = 1024 * 1024

each_generator = pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
seeds = st.integers(0, 2**31)


@each_generator
@given(seeds)
def test_the_same_seed_gives_the_same_load(generator: type[LoadGenerator], seed: int) -> None:
    first, second = generator(random.Random(seed)), generator(random.Random(seed))
    assert [first.next() for _ in range(100)] == [second.next() for _ in range(100)]


@each_generator
@given(seeds)
@hypothesis_settings(max_examples=25)
def test_each_command_leaves_the_proof_that_it_announces(generator: type[LoadGenerator], seed: int) -> None:
    family = next(family for family in FAMILIES if family.commands.topic == generator.topic.name)
    lane, load = SmallLane(family), generator(random.Random(seed))
    applied: set[str] = set()
    for _ in range(COMMANDS):
        made = load.next()
        try:
            envelope = read_envelope(
                family.commands, made.key, made.value, (), reply_partitions=1, max_bytes=MAX_BYTES
            )
        except EnvelopeError:
            assert made.proof is Proof.DEAD_LETTER, made
            continue
        assert made.proof is not Proof.DEAD_LETTER, made
        assert envelope.command_id == made.command_id
        if envelope.command_id in applied:
            # The lane remembers it; nothing may hang on an event of it.
            assert made.proof is Proof.REPLY
            continue
        applied.add(envelope.command_id)
        fields = {
            name: value
            for name, value in envelope.body.items()
            if name not in ("type", "commandId", family.commands.id_field)
        }
        reply = lane.send(envelope.type, envelope.key, command_id=envelope.command_id, **fields)
        made_events = [
            event
            for event in lane.values(RUN_EVENTS.name, envelope.key)
            if event["commandId"] == envelope.command_id
        ]
        if made.proof is Proof.EVENT:
            assert len(made_events) == 1, (made, reply)


def play(load: RunLoad, lane: RunLane, *, lines: int | None = None, status: str = "completed") -> None:
    """Execute what was dispatched as an executor does; `lines` None: as many as the parameters say."""
    for topic, run_id, value in list(lane.outputs):
        if topic != RUN_DISPATCH.name:
            continue
        params = Dispatch.model_validate_json(value).params
        if params is None:
            continue
        for number in range(1, (params["steps"] if lines is None else lines) + 1):
            lane.log(executed_runs.step_line(number), run_id)
        if params["fails"]:
            lane.send("terminal.set", run_id, status="failed", error=f"ValueError: {executed_runs.FAILURE}")
        else:
            lane.send("terminal.set", run_id, status=status, result={"steps": params["steps"]})
    for run_id in dict.fromkeys(key for _, key, _ in lane.outputs):
        for event in lane.values(RUN_EVENTS.name, run_id):
            load.saw(RUN_EVENTS.name, event)


def submitted(seed: int) -> tuple[RunLoad, RunLane]:
    """A load of which all submits of executed runs have been applied, and no cancel."""
    load, lane = RunLoad(random.Random(seed)), RunLane()
    for _ in range(COMMANDS):
        made = load.next()
        if made.kind == "run.submit" and made.proof is Proof.REPLY:
            body = read_envelope(
                RunLane().family.commands, made.key, made.value, (), reply_partitions=1, max_bytes=MAX_BYTES
            ).body
            lane.send("run.submit", body["runId"], name=body["name"], params=body["params"])
    assert load.unfinished() > 0
    return load, lane


@given(seeds)
def test_runs_that_were_executed_as_their_parameters_say_are_no_problem(seed: int) -> None:
    load, lane = submitted(seed)
    play(load, lane)
    assert load.unfinished() == 0
    assert load.problems() == []


@given(seeds)
def test_runs_whose_reports_are_missing_are_a_problem(seed: int) -> None:
    load, lane = submitted(seed)
    play(load, lane, lines=0)
    assert load.problems()


def test_runs_that_have_not_ended_or_ended_twice_are_a_problem() -> None:
    load, _ = submitted(1)
    assert load.problems()
    load, lane = submitted(1)
    play(load, lane)
    play(load, lane)
    assert load.problems()


def test_all_kinds_of_commands_come() -> None:
    load = RunLoad(random.Random(1))
    kinds = Counter(load.next().kind for _ in range(5000))
    odd = {"repeat", "bad input", "events.list", "run.status"}
    assert set(kinds) == odd | {"run.submit", "events.append", "terminal.set", "run.cancel"}
    assert kinds.most_common(1)[0][0] == "events.append"
