"""The loads of calls, awaited results and retries: content with right answers, and not with any wrong one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents.families import FAMILIES
from schemas.topics import REPLIES
from streams.torture.awaited_load import AwaitedLoad
from streams.torture.call_load import CallLoad
from streams.torture.load import LoadCommand, LoadGenerator
from streams.torture.rate_load import RateLoad
from streams.torture.retry_load import RetryLoad
from tests.small_lane import SmallLane

COMMANDS = 300
MEAN_MS = 40

Body = dict[str, Any]
Change = Callable[[str, Body], list[Body]]
"""(type of the command, its answer) -> the answers that the load is told of."""

seeds = st.integers(0, 2**31)
loads = pytest.mark.parametrize(
    "generator", [CallLoad, AwaitedLoad, RetryLoad, RateLoad], ids=lambda load: load.name
)


def as_it_is(type_: str, body: Body) -> list[Body]:
    """Nothing is changed."""
    return [body]


def played(generator: type[LoadGenerator], seed: int, change: Change = as_it_is) -> LoadGenerator:
    """A load whose commands were all applied by the machine, and answered, late ones when their time has come."""
    family = next(family for family in FAMILIES if family.commands.topic == generator.topic.name)
    source, lane, load = random.Random(seed), SmallLane(family), generator(random.Random(seed))
    types: dict[str, str] = {}
    answered: dict[str, Body] = {}

    def tell(command_id: str, reply: Body) -> None:
        answered[command_id] = reply
        for body in change(types[command_id], {"commandId": command_id, **reply}):
            load.saw(REPLIES.name, body)

    def tell_late() -> None:
        while lane.late:
            tell(*lane.late.pop(0))

    for _ in range(COMMANDS):
        made = load.next()
        body = fields_of(made)
        type_, key, command_id = (body.pop(name) for name in ("type", family.commands.id_field, "commandId"))
        if command_id in answered and type_ not in (
            "call.await",
            "child.terminal.await",
            "child.terminal.get",
        ):
            # The lane remembers what it answered.
            tell(command_id, answered[command_id])
        else:
            types[command_id] = type_
            reply = lane.send(type_, key, command_id=command_id, **body)
            if "waits" not in reply:
                tell(command_id, reply)
        lane.pass_time(source.randrange(2 * MEAN_MS))
        tell_late()
    lane.pass_time(60_000)
    tell_late()
    return load


def fields_of(made: LoadCommand) -> Body:
    """The fields of a command."""
    assert made.value is not None
    fields: Body = orjson.loads(made.value)
    return fields


@loads
@given(seeds)
@hypothesis_settings(max_examples=8)
def test_right_answers_are_no_problem(generator: type[LoadGenerator], seed: int) -> None:
    load = played(generator, seed)
    assert load.problems() == []
    assert load.unfinished() == 0


def once(wanted: Callable[[str, Body], bool], make: Callable[[Body], list[Body]]) -> Change:
    """Changes the tenth answer that is wanted, and no other one."""
    left = iter(range(10))

    def change(type_: str, body: Body) -> list[Body]:
        if wanted(type_, body) and next(left, None) == 9:
            return make(body)
        return [body]

    return change


def says(**wanted: Any) -> Callable[[str, Body], bool]:
    """Answers that are ok, of a type if `type` is given, and hold these."""
    type_ = wanted.pop("type", None)

    def holds(of_type: str, body: Body) -> bool:
        result = body.get("result") or {}
        return type_ in (None, of_type) and body["ok"] and all(result.get(k) == v for k, v in wanted.items())

    return holds


def with_result(**changed: Any) -> Callable[[Body], list[Body]]:
    """The answer with other fields in its result."""
    return lambda body: [{**body, "result": {**body["result"], **changed}}]


WRONG: list[tuple[type[LoadGenerator], Change]] = [
    (CallLoad, once(says(status="claimed"), with_result(fencingNumber=77))),
    (CallLoad, once(says(status="hit"), with_result(value="of another call"))),
    (CallLoad, once(says(type="call.publish", published=True), lambda body: [])),
    (
        CallLoad,
        once(says(type="call.claim"), lambda body: [{**body, "ok": False, "error": {"code": "RUN_ENDED"}}]),
    ),
    (AwaitedLoad, once(says(type="child.terminal.get"), with_result(state=None))),
    (AwaitedLoad, once(says(type="child.terminal.set"), with_result(state={"data": "of another run"}))),
    (AwaitedLoad, once(says(type="run.signal"), with_result(stored=False))),
    (RetryLoad, once(says(claimed=True), with_result(attempts=77))),
    (RetryLoad, once(says(claimed=True), with_result(claimed=False))),
    (RetryLoad, once(says(claimed=True), with_result(params=None))),
    (RetryLoad, once(says(claimed=False), with_result(claimed=True))),
    (RateLoad, once(says(type="rate.acquire", granted=1), with_result(granted=77))),
    (RateLoad, once(says(type="rate.lease", waitMs=0), with_result(granted=77))),
    (
        RateLoad,
        once(says(type="rate.acquire"), lambda body: [{**body, "ok": False, "error": {"code": "RUN_ENDED"}}]),
    ),
]


@pytest.mark.parametrize(("generator", "change"), WRONG)
def test_a_wrong_answer_is_a_problem(generator: type[LoadGenerator], change: Change) -> None:
    assert played(generator, 1, change).problems()


def test_a_lease_that_two_get_is_a_problem() -> None:
    claims: list[str] = []

    def change(type_: str, body: Body) -> list[Body]:
        """The first lease is given to the second claimer, too."""
        if type_ == "call.claim":
            claims.append(body["commandId"])
        is_first = says(type="call.claim", status="claimed")(type_, body) and len(claims) > 1
        return [body, {**body, "commandId": claims[0]}] if is_first else [body]

    assert any("got lease" in problem for problem in played(CallLoad, 1, change).problems())


def test_every_fate_of_permits_comes_about() -> None:
    seen: Counter[str] = Counter()

    def look(type_: str, body: Body) -> list[Body]:
        result = body.get("result") or {}
        seen[
            f"{type_} {'gets' if result.get('granted') else 'gets none' if 'granted' in result else body['ok']}"
        ] += 1
        return [body]

    load = played(RateLoad, 1, look)
    assert {
        "rate.acquire gets", "rate.acquire gets none", "rate.lease gets", "rate.settle True", "rate.release True",
        "rate.penalize True",
    } <= set(seen)  # fmt: skip
    counts = load.counts()
    assert counts["permits granted"] > counts["of these in leases"] > counts["over-grants"] == 0


def test_every_fate_of_a_call_comes_about() -> None:
    seen: Counter[str] = Counter()

    def look(type_: str, body: Body) -> list[Body]:
        result = body.get("result") or {}
        seen[
            f"{type_} {result.get('status', result.get('published', body.get('error', {}).get('code')))}"
        ] += 1
        return [body]

    played(CallLoad, 1, look)
    assert {
        "call.claim claimed", "call.claim hit", "call.claim pending", "call.await claimed", "call.await hit",
        "call.publish True", "call.publish False", "call.renew None",
    } <= set(seen)  # fmt: skip
