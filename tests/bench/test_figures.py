"""How the benchmarks compute their figures, and what they send."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from schemas.commands import FieldError
from schemas.envelope import read_envelope
from schemas.run_commands import RUN_COMMANDS
from streams.bench.latency import percentiles
from streams.bench.rebalance import longest_pause
from streams.bench.report import Figure, Target, number
from streams.bench.visible_output import Sample, rate
from streams.bench.workload import COMMAND_BYTES, Workload, command_id, command_number


def sample(at: float, cpu: float = 0.0, **visible: int) -> Sample:
    """A sample whose keywords p0=..., p1=... are the offsets that are visible."""
    return Sample(at, {int(name[1:]): offset for name, offset in visible.items()}, cpu, 0.0)


def records(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"") for offset in offsets]


def test_a_rate_counts_records_and_not_the_offsets_that_markers_take() -> None:
    # Partition 0 has markers at 2 and 5, partition 1 at 2.
    found = {0: records(0, 1, 3, 4), 1: records(0, 1)}
    samples = [
        sample(10.0, cpu=1.0, p0=0, p1=0),
        sample(11.0, cpu=2.0, p0=3, p1=0),
        sample(13.0, cpu=6.0, p0=6, p1=3),
        sample(14.0, cpu=9.0, p0=6, p1=3),
    ]
    measured = rate(samples, found)
    assert measured.records == 4
    assert measured.seconds == 2.0
    assert measured.cpu_us == pytest.approx(4.0 / 4 * 1e6)


def test_a_rate_of_what_came_in_one_sample_counts_from_the_sample_before() -> None:
    samples = [sample(1.0, p0=0), sample(2.0, p0=0), sample(2.5, p0=4)]
    measured = rate(samples, {0: records(0, 1, 2, 3)})
    assert measured.per_second == 4 / 0.5


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([float(value) for value in range(1, 101)]) == [50, 90, 99, 100]
    assert percentiles([7.0]) == [7, 7, 7, 7]


def test_a_pause_is_found_in_any_partition_and_ends_with_the_window() -> None:
    arrivals = [(1.0, 0), (1.1, 1), (2.0, 0), (4.5, 0), (5.0, 1), (5.2, 0), (9.0, 0)]
    assert longest_pause(arrivals, (1.0, 6.0), 2) == pytest.approx(3.9)
    assert longest_pause(arrivals, (1.0, 6.0), 3) == pytest.approx(5.0)
    assert longest_pause(arrivals, (5.0, 5.5), 2) == pytest.approx(0.5)


def test_a_figure_says_whether_its_target_is_reached() -> None:
    assert Figure("rate", 10.0, "x", Target("at least", 10)).reached is True
    assert Figure("rate", 9.9, "x", Target("at least", 10)).reached is False
    assert Figure("time", 3.1, "s", Target("at most", 3)).reached is False
    assert Figure("time", 3.1, "s").reached is None


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (12.34, "12.3"), (0.456, "0.46"), (-250.0, "-250")]
)
def test_numbers_show_the_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_the_workload_is_what_it_says() -> None:
    workload = Workload(commands=1000, runs=50, first_number=300)
    bodies = []
    for key, value in workload.records():
        envelope = read_envelope(RUN_COMMANDS, key, value, (), reply_partitions=4, max_bytes=10_000)
        try:
            RUN_COMMANDS.parse(envelope.body)
        except FieldError as error:
            pytest.fail(f"{value!r}: {error}")
        assert abs(len(value) - COMMAND_BYTES) <= 5
        bodies.append(orjson.loads(value))
    assert [command_number(body["commandId"]) for body in bodies] == list(range(300, 1300))
    assert set(Counter(body["runId"] for body in bodies).values()) == {20}
    ends = [body["runId"] for body in bodies if body["type"] == "terminal.set"]
    last = {body["runId"]: body["type"] for body in bodies}
    assert len(set(ends)) == len(ends) == workload.ended_runs == 5
    assert all(last[run_id] == "terminal.set" for run_id in ends)
    assert list(workload.records()) == list(workload.records())


def test_a_workload_without_ends_only_appends() -> None:
    workload = Workload(commands=100, runs=10, ends_runs=False)
    assert {orjson.loads(value)["type"] for _, value in workload.records()} == {"events.append"}
    assert workload.ended_runs == 0


def test_command_numbers_survive_their_ids() -> None:
    assert command_number(command_id(987654321)) == 987654321
