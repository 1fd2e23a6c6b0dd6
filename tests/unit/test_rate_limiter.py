"""The limiter of a program, in virtual time: what it asks for, when, and what it does when it is told to stay away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest

from agents.rate.tables import LEASES
from schemas.rate_rules import RateRule
from streams.client_errors import CommandRefused
from streams.rate_limiting.limiter import RateLimiter
from streams.rate_limiting.permits import RateLimited
from streams.retry_after import retry_after_s
from tests.simulation.virtual_loop import VirtualLoop
from tests.virtual_bucket import VirtualCalls, VirtualServer, run_virtually

PLENTY = RateRule(rule_id="r", requests_per_window=10**6, window_ms=60_000)
SCARCE = RateRule(rule_id="r", requests_per_window=4, window_ms=60_000)


def limiter_of(loop: VirtualLoop, rule: RateRule | None, **options: Any) -> tuple[VirtualServer, RateLimiter]:
    """A server, and a limiter that asks it."""
    server = VirtualServer(loop)
    rules = None if rule is None else [rule]
    return server, RateLimiter(VirtualCalls(server, Random(1)), "b", rules, **options)


def asked(server: VirtualServer) -> list[int]:
    """How many permits were asked for, each time."""
    return [fields["requested"] for type_, fields in server.commands if type_ == "rate.lease"]


def settled(server: VirtualServer) -> list[int]:
    """How many permits were said to be used, each time."""
    return [fields["used"] for type_, fields in server.commands if type_ == "rate.settle"]


def test_blocks_grow_while_they_are_used_up_fast_and_shrink_when_they_are_not() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY, max_block=100)
        for _ in range(1000):
            async with limiter.permit():
                pass
        sizes = asked(server)
        assert sizes[:8] == [1, 2, 4, 8, 16, 32, 64, 100]
        assert max(sizes) == 100
        assert len(sizes) < 20
        for _ in range(8):
            await asyncio.sleep(10)
            async with limiter.permit():
                pass
        assert limiter.block_size < 10
        await limiter.close()
        assert sum(settled(server)) == 1008
        assert server.lane.peek()["leases"] == 0

    run_virtually(work)


def test_a_block_is_settled_before_it_runs_out_and_not_used_after() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY, block_s=1.0)
        for _ in range(2):
            async with limiter.permit():
                pass
        assert asked(server) == [1, 2]
        await asyncio.sleep(0.95)
        assert settled(server) == [1, 1]
        async with limiter.permit():
            pass
        assert len(asked(server)) == 3
        await limiter.close()
        assert server.lane.peek()["lostLeases"] == 0

    run_virtually(work)


def test_what_a_call_did_not_use_serves_the_next_and_what_it_used_beyond_is_charged() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, SCARCE, estimates=True)
        async with limiter.permit(4) as permit:
            permit.used = 1
        async with limiter.permit(3):
            assert loop.time() < 1
        await limiter.close()
        assert settled(server) == [4]
        server, limiter = limiter_of(loop, PLENTY)
        async with limiter.permit(4) as permit:
            permit.used = 9
        async with limiter.permit(1):
            pass
        await limiter.close()
        assert sum(settled(server)) == 10

    run_virtually(work)


def test_calls_wait_in_order_and_no_longer_than_they_want() -> None:
    async def work(loop: VirtualLoop) -> None:
        _, limiter = limiter_of(loop, SCARCE)
        done: list[int] = []

        async def call(number: int) -> None:
            async with limiter.permit():
                done.append(number)

        calls = [loop.create_task(call(number)) for number in range(8)]
        await asyncio.sleep(30)
        assert done == [0, 1, 2, 3]
        with pytest.raises(TimeoutError):
            async with limiter.permit(timeout=5):
                pass
        await asyncio.gather(*calls)
        assert done == list(range(8))
        assert 60 <= loop.time() < 75
        await limiter.close()

    run_virtually(work)


def test_more_calls_than_may_do_not_wait() -> None:
    async def work(loop: VirtualLoop) -> None:
        _, limiter = limiter_of(loop, SCARCE, max_waiting=2)
        async with limiter.permit(4):
            pass

        async def call() -> None:
            async with limiter.permit():
                pass

        waiting = [loop.create_task(call()) for _ in range(2)]
        await asyncio.sleep(1)
        assert limiter.waiting == 2
        with pytest.raises(RateLimited, match="2 calls wait"):
            await call()
        await limiter.close()
        assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2

    run_virtually(work)


def test_who_is_told_to_stay_away_gives_back_and_all_wait() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY)
        other = RateLimiter(VirtualCalls(server, Random(2)), "b", [PLENTY])
        for _ in range(20):
            async with limiter.permit():
                pass
        assert not await limiter.respect(200, {"retry-after": "5"})
        assert not await limiter.respect(429, {})
        begun = loop.time()
        assert await limiter.respect(429, {"retry-AFTER": "5"})
        async with other.permit():
            assert loop.time() >= begun + 5
        async with limiter.permit():
            assert loop.time() >= begun + 5
        await limiter.close()
        await other.close()
        assert sum(settled(server)) == 22

    run_virtually(work)


def test_what_can_never_be_granted_is_refused_and_others_go_on() -> None:
    async def work(loop: VirtualLoop) -> None:
        _, limiter = limiter_of(loop, SCARCE)

        @limiter.limited(cost=5)
        async def dear() -> str:
            return "called"

        @limiter.limited()
        async def cheap(word: str) -> str:
            return word

        refused, called = await asyncio.gather(dear(), cheap("yes"), return_exceptions=True)
        assert isinstance(refused, CommandRefused)
        assert refused.code == "RATE_NEVER_GRANTED"
        assert called == "yes"
        with pytest.raises(ValueError, match="costs 1 to 1,000,000,000,000 permits"):
            async with limiter.permit(0):
                pass
        await limiter.close()

    run_virtually(work)


def test_what_is_no_async_function_is_refused_when_it_is_decorated() -> None:
    class Asking:
        async def __call__(self, word: str) -> str:
            return word

    async def words() -> AsyncIterator[str]:
        yield "a"

    def plain() -> None:
        """Never called."""

    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY)
        for function in (plain, words, str):
            limited: Any = limiter.limited()
            with pytest.raises(TypeError, match=r"`async def` .* write `async with limiter\.permit\(\):`"):
                limited(function)
        assert server.commands == []
        assert await limiter.limited()(limiter.limited(cost=2)(Asking()))("called") == "called"
        await limiter.close()
        assert sum(settled(server)) == 3

    run_virtually(work)


ONE_AT_A_TIME = RateRule(rule_id="r", requests_per_window=10**6, window_ms=60_000, max_concurrency=1)


def test_a_call_that_outlives_its_lease_keeps_it_and_one_that_dies_does_not() -> None:
    async def work(loop: VirtualLoop) -> None:
        server = VirtualServer(loop)
        calls, others = VirtualCalls(server, Random(1)), VirtualCalls(server, Random(2))
        limiter = RateLimiter(calls, "b", [ONE_AT_A_TIME], lease_s=2)
        other = RateLimiter(others, "b", [ONE_AT_A_TIME], lease_s=2)

        async def long_call() -> None:
            async with limiter.permit() as permit:
                await asyncio.sleep(9)
                assert not permit.is_lost
                assert not waiting.done()

        async def wait_for_it() -> float:
            async with other.permit():
                return loop.time()

        calling = asyncio.create_task(long_call())
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(wait_for_it())
        await calling
        ended = loop.time()
        assert await waiting < ended + 0.5
        renewals = [fields["leaseMs"] for type_, fields in server.commands if type_ == "rate.renew"]
        assert len(renewals) > 9 // 2
        assert set(renewals) == {2000}

        # Nobody renews for a process that is gone.
        async with limiter.permit():
            await asyncio.sleep(5)
            calls.is_dead = True
            begun = loop.time()
            assert begun < await wait_for_it() < begun + 2 + 0.5

        # Who has lost it all the same is told.
        async with other.permit() as permit:
            ((_, expires_at, number),) = server.lane.keys(LEASES)
            server.lane.send("rate.release", leaseId=f"{expires_at}-{number}", fencingNumber=number)
            await asyncio.sleep(1)
            assert permit.is_lost
        await other.close()
        assert server.lane.peek()["leases"] == 0

    run_virtually(work)


def test_stored_rules_are_used_when_none_are_given() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, None)
        with pytest.raises(CommandRefused, match="RATE_RULES_REQUIRED"):
            async with limiter.permit():
                pass
        client = VirtualCalls(server, Random(3))
        bounded = RateRule(rule_id="r", requests_per_window=9, window_ms=1000, max_concurrency=1)
        await client.put_rate_rules("b", [bounded])
        limiter = RateLimiter(client, "b")
        async with limiter.permit():
            with pytest.raises(TimeoutError):
                async with limiter.permit(timeout=3):
                    pass
        async with limiter.permit():
            pass
        await limiter.close()

    run_virtually(work)


def test_limiters_follow_when_the_stored_rules_begin_and_cease_to_bound_concurrency() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, None)
        client = VirtualCalls(server, Random(3))
        free = RateRule(rule_id="r", requests_per_window=1000, window_ms=60_000)
        running = most = 0

        async def call() -> None:
            nonlocal running, most
            async with limiter.permit():
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.5)
                running -= 1

        await client.put_rate_rules("b", [free])
        await asyncio.gather(*(call() for _ in range(6)))
        assert most == 6
        await client.put_rate_rules("b", [free.model_copy(update={"max_concurrency": 2})])
        await asyncio.sleep(10)
        most = 0
        await asyncio.gather(*(call() for _ in range(6)))
        assert most == 2
        await client.put_rate_rules("b", [free])
        most = 0
        await asyncio.gather(*(call() for _ in range(6)))
        await limiter.close()
        assert most == 6
        assert server.lane.peek()["rules"][0]["used"] == 18

    run_virtually(work)


def test_calls_that_wait_for_leases_are_counted_and_cancelled_too() -> None:
    async def work(loop: VirtualLoop) -> None:
        rule = RateRule(rule_id="r", requests_per_window=100, window_ms=1000, max_concurrency=1)
        server, limiter = limiter_of(loop, rule, max_waiting=2)

        async def call() -> None:
            async with limiter.permit():
                pass

        async with limiter.permit():
            waiting = [loop.create_task(call()) for _ in range(2)]
            await asyncio.sleep(1)
            assert limiter.waiting == 2
            with pytest.raises(RateLimited, match="2 calls wait"):
                await call()
        assert await asyncio.gather(*waiting) == [None, None]
        async with limiter.permit():
            waiting = [loop.create_task(call()) for _ in range(2)]
            await asyncio.sleep(1)
            closing = loop.create_task(limiter.close())
            assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [
                asyncio.CancelledError
            ] * 2
        await closing
        assert server.lane.peek()["leases"] == 0

    run_virtually(work)


def test_a_call_that_costs_much_gets_its_turn_among_calls_that_cost_little() -> None:
    async def work(loop: VirtualLoop) -> None:
        rule = RateRule(rule_id="r", requests_per_window=30, window_ms=60_000, kind="bucket")
        server, dear = limiter_of(loop, rule, run_id="dear")
        cheap = [RateLimiter(VirtualCalls(server, Random(n)), "b", [rule], run_id=f"{n}") for n in range(4)]

        async def calls(limiter: RateLimiter) -> None:
            while True:
                async with limiter.permit():
                    pass

        busy = [loop.create_task(calls(limiter)) for limiter in cheap]
        await asyncio.sleep(5)
        async with dear.permit(20, timeout=600):
            pass
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    run_virtually(work)


def test_what_was_used_beyond_is_charged_when_no_call_follows_and_nobody_uses_less_than_nothing() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY)
        async with limiter.permit(4) as permit:
            permit.used = 9
        await limiter.close()
        assert server.lane.peek()["rules"][0]["used"] == 9
        server, limiter = limiter_of(loop, SCARCE, estimates=True)
        async with limiter.permit(4) as permit:
            permit.used = -4
        async with limiter.permit(4):
            pass
        with pytest.raises(TimeoutError):
            async with limiter.permit(4, timeout=1):
                pass
        await limiter.close()

    run_virtually(work)


@pytest.mark.parametrize("cost", [1.5, float("nan"), 10**13])
def test_a_cost_that_no_block_can_have_is_refused_at_once(cost: Any) -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY)
        with pytest.raises((TypeError, ValueError)):
            async with limiter.permit(cost, timeout=5):
                pass
        assert server.commands == []

    run_virtually(work)


def test_a_call_waits_no_longer_than_it_wants_when_nobody_tells_the_stored_rules() -> None:
    async def work(loop: VirtualLoop) -> None:
        calls = VirtualCalls(VirtualServer(loop), Random(1))
        calls.is_dead = True

        async def call() -> None:
            async with RateLimiter(calls, "b").permit(timeout=2):
                pass

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(), 60)
        assert loop.time() < 3

    run_virtually(work)


def test_no_response_and_no_number_keeps_all_away_for_ever() -> None:
    async def work(loop: VirtualLoop) -> None:
        server, limiter = limiter_of(loop, PLENTY)
        for seconds in (float("inf"), float("nan"), 10.0**9):
            with pytest.raises(ValueError, match="a year at most"):
                await limiter.penalize(seconds)
        await limiter.penalize(-5)
        assert server.commands == []
        assert await limiter.respect(429, {"Retry-After": "999999999999"})
        async with limiter.permit():
            assert 3600 <= loop.time() < 3700
        await limiter.close()

    run_virtually(work)


@pytest.mark.parametrize(
    ("status", "value", "seconds"),
    [
        (429, "7", 7.0),
        (503, " 0 ", 0.0),
        (500, "7", None),
        (429, "", None),
        (429, "soon", None),
        (429, "-1", None),
        (429, "1.5", None),
        (429, "²", None),
        (429, format_datetime(datetime.fromtimestamp(1030, UTC), usegmt=True), 30.0),
        (429, format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_read_in_both_its_forms(status: int, value: str, seconds: float | None) -> None:
    assert retry_after_s(status, {"Retry-After": value}, now=lambda: 1000.0) == seconds
