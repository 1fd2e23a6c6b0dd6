"""How much of a topic is visible, as time passes: samples while a contender runs, counted afterwards."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from streams.bench.processes import cpu_seconds, cpu_seconds_of
from streams.child_process import ChildProcess
from streams.messaging.kafka_config import reader_config
from streams.messaging.topic_positions import Positions, TopicPositions, passes
from streams.settings import Settings

_SAMPLE_EVERY_S = 0.02
_STANDS_STILL_S = 90.0
_BATCH = 10_000


@dataclass(frozen=True)
class Sample:
    """What was visible at one moment, and the processor time used until then."""

    at: float
    visible: Positions
    cpu: float
    broker_cpu: float


@dataclass(frozen=True)
class Rate:
    """Records per second from the first to the last sample in which something became visible."""

    records: int
    seconds: float
    cpu_us: float
    """Processor time of the process per record, in microseconds."""
    broker_cpu_us: float

    @property
    def per_second(self) -> float:
        """Records per second."""
        return self.records / self.seconds


def sample_until(
    processes: Sequence[ChildProcess],
    broker_pid: int | None,
    positions: TopicPositions,
    topic: str,
    partitions: int,
    is_done: Callable[[Positions], bool],
    progress: Callable[[float], None],
) -> list[Sample]:
    """Start the processes and sample the visible offsets of `topic` every 20 ms until `is_done(visible)`."""
    # Before they start: the first question of a client takes longer than all later ones.
    visible = positions.visible(topic, partitions)
    samples = [Sample(time.monotonic(), visible, 0.0, _broker_cpu(broker_pid))]
    for process in processes:
        process.start()
    moved_at = time.monotonic()
    while True:
        visible = positions.visible(topic, partitions)
        at = time.monotonic()
        if samples[-1].visible != visible:
            moved_at = at
        cpu = sum(cpu_seconds(process) for process in processes)
        samples.append(Sample(at, visible, cpu, _broker_cpu(broker_pid)))
        progress(sum(visible.values()))
        if is_done(visible):
            return samples
        for process in processes:
            process.require_alive()
        if at - moved_at > _STANDS_STILL_S:
            raise processes[0].gave_up(f"{topic} stands still at {visible} for {_STANDS_STILL_S:.0f} s")
        time.sleep(_SAMPLE_EVERY_S)


def _broker_cpu(pid: int | None) -> float:
    return 0.0 if pid is None else cpu_seconds_of(pid)


def read_records(settings: Settings, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Per partition (offset, value) of every committed record that is in the topic now."""
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
    consumer = Consumer(reader_config(settings))
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
        unread = set(found)
        while unread:
            for message in consumer.consume(_BATCH, 0.1):
                error = message.error()
                if error is None:
                    found[message.partition()].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                elif not passes(KafkaException(error)):
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def command_ids(records: dict[int, list[tuple[int, bytes]]]) -> list[str]:
    """The ids of the commands that made these events, in no particular order."""
    return [orjson.loads(value)["commandId"] for part in records.values() for _, value in part]


def rate(samples: list[Sample], records: dict[int, list[tuple[int, bytes]]]) -> Rate:
    """The rate at which `records` became visible; the first batch starts the clock and is not counted.

    Transaction markers take offsets too, so samples are turned into numbers of records here.
    """
    offsets = {partition: [offset for offset, _ in part] for partition, part in records.items()}
    counted = [
        (sample, sum(bisect_left(offsets[partition], end) for partition, end in sample.visible.items()))
        for sample in samples
    ]
    start = next(index for index, (_, count) in enumerate(counted) if count)
    first, first_count = counted[start]
    last_count = counted[-1][1]
    if first_count == last_count:
        # All of it came between two samples: the best that can be said is that it took no longer than this.
        first, first_count = counted[max(0, start - 1)]
    last = next(sample for sample, count in counted if count == last_count)
    number = last_count - first_count
    return Rate(
        records=number,
        seconds=max(last.at - first.at, _SAMPLE_EVERY_S),
        cpu_us=(last.cpu - first.cpu) / number * 1e6,
        broker_cpu_us=(last.broker_cpu - first.broker_cpu) / number * 1e6,
    )


def curve(samples: list[Sample], every_s: float = 0.5) -> list[tuple[float, int]]:
    """(seconds since the first visible record, offsets visible), thinned out: shows whether it was steady."""
    start = next((sample.at for sample in samples if any(sample.visible.values())), samples[0].at)
    points: list[tuple[float, int]] = []
    for sample in samples:
        if sample.at >= start and (not points or sample.at - start - points[-1][0] >= every_s):
            points.append((round(sample.at - start, 3), sum(sample.visible.values())))
    return points
