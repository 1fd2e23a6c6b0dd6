"""Limiters of several processes that share a bucket, in virtual time: calls exceed no rule, whoever crashes when."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.rate_rules import Kind, RateRule
from streams.rate_limiting.limiter import RateLimiter
from tests.simulation.virtual_loop import VirtualLoop
from tests.virtual_bucket import VirtualCalls, VirtualServer, run_virtually

Calls = list[tuple[float, int]]

LIFE_S = 12.0


class Process:
    """A program with a limiter and some tasks that make calls."""

    def __init__(self, server: VirtualServer, random: Random, rules: list[RateRule], calls: Calls) -> None:
        self._random = random
        self._loop = server.loop
        self._calls = calls
        self.client = VirtualCalls(server, random, random.choice([0.001, 0.02, 0.3]))
        self.limiter = RateLimiter(
            self.client,
            "b",
            rules,
            run_id=random.choice([None, "x", "y"]),
            max_block=random.choice([1, 5, 100]),
            block_s=random.choice([1.0, 3.0]),
            estimates=random.choice([False, True]),
        )
        self.tasks = [self._loop.create_task(self._work()) for _ in range(random.randint(1, 4))]

    def crash(self) -> None:
        """Die without a word: no call is made and nothing is sent from now on."""
        self.client.is_dead = True
        for task in self.tasks:
            task.cancel()

    async def _work(self) -> None:
        random = self._random
        while self._loop.time() < LIFE_S:
            await asyncio.sleep(random.choice([0.0, 0.0, 0.03, 0.5, 2.0]))
            cost = random.choice([1, 1, 1, 2, 3])
            try:
                async with self.limiter.permit(cost, timeout=random.choice([None, 0.05, 4.0])) as permit:
                    if random.random() < 0.1:
                        permit.used = random.randint(0, cost)
                    if permit.used:
                        self._calls.append((self._loop.time(), permit.used))
                    await asyncio.sleep(random.choice([0.0, 0.05]))
                if random.random() < 0.02:
                    await self.limiter.respect(429, {"Retry-After": "1"})
            except TimeoutError:
                continue


async def share(loop: VirtualLoop, seed: int, rules: list[RateRule]) -> tuple[Calls, VirtualServer]:
    """Some processes share a bucket for a while, and some of them crash; returns the calls that were made."""
    random = Random(seed)
    calls: Calls = []
    server = VirtualServer(loop)
    processes = [Process(server, random, rules, calls) for _ in range(random.randint(1, 4))]
    for process in processes:
        if random.random() < 0.4:
            loop.call_later(random.uniform(0.1, LIFE_S), process.crash)
    await asyncio.sleep(LIFE_S + 8)
    for process in processes:
        if not process.client.is_dead:
            await asyncio.gather(*process.tasks)
            await process.limiter.close()
    await asyncio.sleep(5)
    server.tick()
    return calls, server


@given(
    st.integers(0, 2**32),
    st.sampled_from(["window", "sliding", "bucket"]),
    st.sampled_from([3, 10, 50]),
    st.sampled_from([200, 1000, 3000]),
)
def test_no_rule_is_exceeded_and_nothing_stays_leased(
    seed: int, kind: Kind, permits: int, window_ms: int
) -> None:
    rule = RateRule(rule_id="r", requests_per_window=permits, window_ms=window_ms, kind=kind)
    calls, server = run_virtually(lambda loop: share(loop, seed, [rule]))
    span = window_ms / 1000
    times = [at for at, _ in calls]
    for begin in times:
        made = sum(count for at, count in calls if begin <= at < begin + span - 0.001)
        # A fixed window's end and the next one's begin may lie close together; a bucket has its burst beside its rate.
        assert made <= (permits if kind == "sliding" else 2 * permits)
    if kind == "window":
        # Each of the rule's own windows, whose begin the first grant has set.
        first = server.first_grant_s or 0.0
        windows: dict[int, int] = {}
        for at, count in calls:
            number = int((at - first) / span + 1e-6)
            windows[number] = windows.get(number, 0) + count
        assert all(made <= permits for made in windows.values())
    seen = server.lane.peek([rule.model_dump(by_alias=True)])
    assert (seen["leases"], seen["waiting"]) == (0, 0)


@given(st.integers(0, 2**32), st.integers(3, 6))
def test_concurrency_is_never_exceeded(seed: int, most: int) -> None:
    async def check(loop: VirtualLoop) -> None:
        random = Random(seed)
        server = VirtualServer(loop)
        rule = RateRule(rule_id="r", requests_per_window=10**6, window_ms=1000, max_concurrency=most)
        running = 0

        async def call(limiter: RateLimiter) -> None:
            nonlocal running
            for _ in range(6):
                try:
                    async with limiter.permit(
                        random.choice([1, 2]), timeout=random.choice([None, 0.05])
                    ) as permit:
                        running += permit.cost
                        assert running <= most
                        await asyncio.sleep(random.uniform(0, 0.2))
                        running -= permit.cost
                except TimeoutError:
                    continue

        limiters = [RateLimiter(VirtualCalls(server, random), "b", [rule]) for _ in range(3)]
        await asyncio.gather(*(call(limiter) for limiter in limiters for _ in range(2)))
        await asyncio.sleep(11)  # What was asked for by who had given up is given back.
        for limiter in limiters:
            await limiter.close()
        assert server.lane.peek([rule.model_dump(by_alias=True)])["leases"] == 0

    run_virtually(check)
