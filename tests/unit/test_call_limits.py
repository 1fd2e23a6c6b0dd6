"""Permits of an executor's calls, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, TypeVar

from schemas.rate_rules import RateRule
from schemas.results import Result
from streams.client_errors import CommandTimeout, SentCommand
from streams.command_methods import CallOptions
from streams.execution.call_limits import CallLimits
from tests.simulation.virtual_loop import VirtualLoop
from tests.virtual_bucket import VirtualCalls, VirtualServer, run_virtually

R = TypeVar("R", bound=Result)


class AbsentCalls(VirtualCalls):
    """The coordinator is away for the next commands."""

    missing: dict[str, int]
    """Command type -> how many commands get no answer."""

    async def _call(
        self, answer: type[R], command_type: str, key: str, fields: Mapping[str, Any], options: CallOptions
    ) -> R:
        if self.missing.get(command_type, 0):
            self.missing[command_type] -= 1
            command = SentCommand(command_type, "c", "bucketId", key, "rate-commands", 0)
            raise CommandTimeout(command, waited_s=30.0, offset=0, replies="replies[0]", brokers="b")
        return await super()._call(answer, command_type, key, fields, options)


def test_a_call_waits_for_permits_while_the_coordinator_is_away() -> None:
    async def work(loop: VirtualLoop) -> None:
        server = VirtualServer(loop)
        client = AbsentCalls(server, Random(1))
        client.missing = {}
        await client.put_rate_rules("b", [RateRule(rule_id="r", requests_per_window=5, window_ms=60_000)])
        client.missing = {"rate.rules.get": 2, "rate.lease": 2}
        limits, executed = CallLimits(client), []
        async with limits.permit("b", 2):
            executed.append(server.lane.peek()["rules"][0]["used"])
        await limits.close()
        assert client.missing == {"rate.rules.get": 0, "rate.lease": 0}
        assert executed == [2]

    run_virtually(work)
