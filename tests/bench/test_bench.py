"""A tiny run of each benchmark on the real broker: it completes, counts right, and cleans up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from rich.console import Console

from streams.bench import suite
from streams.bench.calls import CallsPlan
from streams.bench.failover import FailoverPlan
from streams.bench.full_runs import FullRunsPlan
from streams.bench.latency import LatencyPlan
from streams.bench.live_runs import LiveRunsPlan
from streams.bench.memory import MemoryPlan
from streams.bench.rates import RatesPlan
from streams.bench.rebalance import RebalancePlan
from streams.bench.report import BenchResult, Conditions, Figure, show
from streams.bench.restore import RestorePlan
from streams.bench.throughput import ThroughputPlan
from streams.bench.verification import VerificationPlan
from streams.bench.workbench import Workbench
from streams.cli.main import main
from streams.settings import Settings
from streams.user_errors import UserError
from tests.bench.valkey import PROGRAM
from tests.waiting import wait_until

PLANS: dict[str, Any] = {
    "throughput": ThroughputPlan(commands=600, runs=30, faust_commands=60, warmup_commands=60, rounds=1),
    "latency": LatencyPlan(rates=(20, 200), first_warmup_s=0.5, warmup_s=0.5, seconds=1, rounds=2),
    "restore": RestorePlan(records=600, runs=30, rounds=1),
    "memory": MemoryPlan(events=600, runs=30),
    "calls": CallsPlan(rate=20, warmup_s=0.5, lead_s=0.5, seconds=1, commands=320, rounds=1),
    "full-runs": FullRunsPlan(events=5, calls=5, runs=4, commands=40, rounds=2),
    "live-runs": LiveRunsPlan(runs=20),
    "verify": VerificationPlan(events=600, runs=30),
    "rates": RatesPlan(
        acquires=500, buckets=20, seconds=1, rate=20, tasks=4, waiting=30, rounds=1, redis_server=PROGRAM
    ),
    "failover": FailoverPlan(changelog_records=300, runs=40, rate=50, repeats=1),
    "rebalance": RebalancePlan(rate=100, warmup_commands=100, runs=40, repeats=1, watched_s=1),
}


def bench_topics(broker: str) -> set[str]:
    """Names of the topics that benchmarks made."""
    topics = AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics
    return {name for name in topics if name.startswith("bench-")}


class Ran:
    """Runs benchmarks by their tiny plans and checks what holds for each."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._broker = broker
        self._folder = folder

    def __call__(self, name: str) -> dict[str, Any]:
        """The result as it is read back from the JSON file."""
        before, processes = bench_topics(self._broker), psutil.Process().children()
        shown: list[tuple[BenchResult, Conditions, Conditions]] = []
        quiet = Console(quiet=True)
        settings = Settings(brokers=self._broker)
        report, file = suite.run(
            settings, {name: PLANS[name]}, quiet, self._folder, lambda *seen: shown.append(seen)
        )
        assert report.failures == {}
        assert psutil.Process().children() == processes, "a process was left behind"
        wait_until(lambda: bench_topics(self._broker) <= before, "the benchmark's topics are deleted")
        show(quiet, *shown[0])

        written = orjson.loads(file.read_bytes())
        assert set(written) == {
            "started_at",
            "machine",
            "versions",
            "plans",
            "results",
            "failures",
            "conditions",
            "seconds",
        }
        assert {"processor", "cores", "memory", "system"} <= set(written["machine"])
        assert {"python", "runlane", "faust-streaming", "confluent-kafka", "librdkafka", "rocksdict"} <= set(
            written["versions"]
        )
        assert len(written["conditions"][name]) == 2
        result: dict[str, Any] = written["results"][name]
        assert result["figures"]
        for figure in result["figures"]:
            assert figure["value"] >= 0
            assert (figure["reached"] is None) == (figure["target"] is None)
        assert all(len(row) == len(result["columns"]) for row in result["rows"])
        return result


@pytest.fixture
def ran(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Ran(broker, tmp_path / "results")


def test_every_benchmark_is_tested() -> None:
    assert set(PLANS) == set(suite.BENCHES)


def test_throughput_applies_each_command_once_and_compares(ran: Ran) -> None:
    result = ran("throughput")
    (counted,) = result["checks"]["rounds"]
    assert counted["commands"] == 600
    for name in ("runlane", "runlane, two workers"):
        assert counted[name] == {"events": 600, "commandsApplied": 600, "runsEnded": 3, "runsToEnd": 3}
    assert 60 <= counted["plain Faust agent"]["records"] <= 600
    assert counted["bare loop"]["records"] == 600
    rates = result["samples"]["ratesPerSecond"]
    assert set(rates) == {"runlane", "runlane, two workers", "plain Faust agent", "bare loop"}
    assert all(len(found) == 1 and found[0] > 0 for found in rates.values())
    ratio = rates["runlane"][0] / rates["bare loop"][0] * 100
    assert result["samples"]["percentOfBare"]["runlane"] == [pytest.approx(ratio)]


def test_latency_has_percentiles_of_each_rate_and_round(ran: Ran) -> None:
    result = ran("latency")
    assert set(result["samples"]["p50p90p99max"]) == {"20", "200"}
    for rounds in result["samples"]["p50p90p99max"].values():
        assert len(rounds) == 2
        for percentiles in rounds:
            assert percentiles == sorted(percentiles)
            assert percentiles[0] > 0
    # 0.5 s at 200/s, then 1.5 s at 20/s and at 200/s, twice; the schedule is kept however late the sender is.
    assert 700 <= result["checks"]["commandsSent"] <= 1600


def test_restore_reads_the_whole_changelog(ran: Ran) -> None:
    result = ran("restore")
    (records,) = result["checks"]["records"]
    assert 600 <= records <= 600 + 4 * 200
    assert result["rows"][0][1] == records


def test_memory_is_that_of_a_worker_that_applied_everything(ran: Ran) -> None:
    result = ran("memory")
    assert result["checks"]["commandsApplied"] == 600
    # An event, its answer, and at least one window and head for each run.
    assert result["checks"]["recordsRestored"] >= 2 * 600
    assert all(20 < megabytes < 2000 for _, megabytes in result["rows"])


def test_calls_are_timed_from_claim_to_hit_and_a_mixed_set_is_compared(ran: Ran) -> None:
    result = ran("calls")
    assert result["checks"]["callsMeasured"] == 20
    for kind, rounds in result["samples"]["p50p90p99max"].items():
        for percentiles in rounds:
            assert percentiles == sorted(percentiles), kind
    one_by_one = [row[1] for row in result["rows"]]
    assert one_by_one[-1] > max(one_by_one[:-1])
    rates = result["samples"]["commandsPerSecond"]
    assert set(rates) == {"mixed", "events.append"}
    assert all(len(found) == 1 and found[0] > 0 for found in rates.values())


def test_full_runs_are_compared_with_fresh_ones(ran: Ran) -> None:
    result = ran("full-runs")
    # 4 runs with 5 events and 5 calls (two commands each); then 40 commands on full and 40 on fresh runs, twice.
    assert result["checks"]["commandsApplied"] == 4 * (5 + 2 * 5) + 2 * (40 + 40)
    assert len(result["samples"]["percent"]) == 2


def test_a_verification_looks_at_every_event(ran: Ran) -> None:
    result = ran("verify")
    assert result["checks"] == {"commandsApplied": 600, "eventsChecked": 600, "clean": True}
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert 20 < figures["memory at most"] < 1000
    assert figures["processor time"] > 0


def test_live_runs_have_events_calls_and_launch_state(ran: Ran) -> None:
    result = ran("live-runs")
    assert result["checks"]["commandsApplied"] == 20 * 32
    # At least: a head, events, calls with results, and launch state in four records.
    assert result["checks"]["recordsRestored"] >= 20 * (1 + 20 + 2 * 5 + 4)


def test_permits_are_taken_in_every_way_and_waiting_runs_take_turns(ran: Ran) -> None:
    result = ran("rates")
    many, one = result["samples"]["manyAtOnce"], result["samples"]["oneProcess"]
    assert len(many) == 5
    assert len(one) == 5
    for found in [*many.values(), *one.values()]:
        assert found[0]["per_second"] > 0
    for (found,) in one.values():
        assert 0 < found["p50_ms"] <= found["p99_ms"]
        assert found["client_us"] > 0
    (served,) = result["checks"]["servedAt"]
    assert max(served) <= 11


def test_failover_is_measured_with_and_without_the_disk(ran: Ran) -> None:
    result = ran("failover")
    assert result["checks"]["eachVisibleOnce"] is True
    for how in ("disk kept", "disk lost"):
        (one,) = result["samples"][how]
        assert 0 < one["firstS"] <= one["allS"]
        assert 0 <= one["restoreS"] < one["allS"]


def test_rebalance_has_a_pause_for_each_join_and_leave(ran: Ran) -> None:
    result = ran("rebalance")
    assert result["checks"]["commandsSent"] > 0
    assert {what: len(found) for what, found in result["samples"]["pausesS"].items()} == {
        "a worker joins": 1,
        "a worker leaves": 1,
        "nothing happens": 1,
    }
    assert all(found[0] > 0 for found in result["samples"]["pausesS"].values())


def test_the_command_prints_json_and_writes_the_same(broker: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streams.cli", "--json", "--brokers", broker, "bench", "memory"]
    command += ["--events", "100", "--runs", "10", "--results", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    (file,) = (tmp_path / "results").glob("*.json")
    assert orjson.loads(done.stdout) == orjson.loads(file.read_bytes())
    assert orjson.loads(done.stdout)["plans"] == {"memory": {"events": 100, "runs": 10}}


def test_a_benchmark_that_cannot_be_finished_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(bench: Workbench, plan: MemoryPlan) -> BenchResult:
        raise UserError(f"all {plan.events} are gone")

    def succeed(bench: Workbench, plan: MemoryPlan) -> BenchResult:
        return BenchResult("second", "how", [Figure("speed", 1.0, "m/s")], ["a"], [[1]], {})

    plan = MemoryPlan(events=7)
    benches = {"first": suite.Bench(fail, plan, plan), "second": suite.Bench(succeed, plan, plan)}
    monkeypatch.setattr(suite, "BENCHES", benches)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Two benchmarks of this test, which need no broker.
    arguments = ["--brokers", "127.0.0.1:1", "--json", "bench", "--results", str(tmp_path / "results")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    said = capsys.readouterr()
    report = orjson.loads(said.out)
    assert report["failures"] == {"first": "all 7 are gone"}
    assert list(report["results"]) == ["second"]
    assert "first could not be finished: all 7 are gone" in said.err
