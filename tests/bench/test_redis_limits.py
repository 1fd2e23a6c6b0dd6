"""The scripts that runlane is measured against keep to their rules, on a server that speaks Redis' protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from schemas.rate_rules import RateRule
from streams.bench.redis_limits import CELL, WINDOWS, cell_arguments, windows_arguments
from streams.bench.redis_server import RedisServer, find_redis
from streams.user_errors import UserError
from tests.bench.valkey import PROGRAM

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(PROGRAM, tmp_path_factory.mktemp("redis"), "always") as server:
        yield server.start().wait_ready()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis(port=server.port) as client:
        client.flushall()
        yield client


def rule(kind: Any, permits: int, window_ms: int = HOUR_MS) -> RateRule:
    return RateRule(rule_id=kind, kind=kind, requests_per_window=permits, window_ms=window_ms)


def windows(client: Redis, rules: list[RateRule], cost: int = 1) -> list[int]:
    return client.register_script(WINDOWS)(["b"], windows_arguments(rules, cost))


def test_all_rules_are_charged_or_none(client: Redis) -> None:
    rules = [rule("window", 5), rule("sliding", 3)]
    assert windows(client, rules, 2) == [1, 0]
    refused, wait_ms = windows(client, rules, 2)
    assert refused == 0
    assert 0 < wait_ms <= HOUR_MS + HOUR_MS // 32
    # The refused one has charged neither: one is left of the second, three of the first.
    assert windows(client, rules) == [1, 0]
    assert windows(client, rules)[0] == 0
    assert windows(client, [rules[0]], 2) == [1, 0]
    assert windows(client, [rules[0]])[0] == 0


@pytest.mark.parametrize("kind", ["window", "sliding"])
def test_permits_come_back_when_the_answer_says_so(client: Redis, kind: str) -> None:
    rules = [rule(kind, 2, 200)]
    assert windows(client, rules, 2) == [1, 0]
    refused, wait_ms = windows(client, rules)
    assert refused == 0
    time.sleep(wait_ms / 1000 + 0.002)
    assert windows(client, rules, 2) == [1, 0]


def test_cells_have_a_burst_and_then_the_rate(client: Redis) -> None:
    script, arguments = client.register_script(CELL), cell_arguments([rule("bucket", 4, 4000)])
    assert [script(["b"], arguments)[0] for _ in range(5)] == [1, 1, 1, 1, 0]
    _, wait_ms = script(["b"], arguments)
    assert 0 < wait_ms <= 1000


def test_what_was_granted_survives_a_kill(server: RedisServer, client: Redis) -> None:
    rules = [rule("window", 3)]
    assert windows(client, rules, 3) == [1, 0]
    server.kill()
    server.start().wait_ready()
    assert windows(client, rules)[0] == 0


def test_a_missing_server_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no program 'redis-server'") as raised:
        find_redis(None)
    assert "apt-get install redis-server" in str(raised.value) + str(raised.value.hint)
    with pytest.raises(UserError, match="no program '/nowhere/redis'"):
        find_redis("/nowhere/redis")
    assert find_redis(PROGRAM) == PROGRAM
