"""Judges a finished schedule, by the committed topics and what was sent.

The strongest check: the committed commands, fed one by one to the sequential lane with the same timer firings, must
give the outputs and the state that are on the topics. Which commands a transaction took and when it fired timers is
taken from the recording of the lanes; that what they claim is the log, whole and in order, is checked first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from schemas.topics import REPLIES, STATE_CHANGELOG, TOPICS
from streams.lane_tables import PROGRESS, TIMERS, TIMERS_DUE
from streams.ports import HEAL_KEY, OutRecord
from streams.repairs import REPAIR, Repair
from streams.transaction_names import names_in
from tests.simulation.families.registry import simulated_families
from tests.simulation.memory_cluster import as_logged, lane_writer
from tests.simulation.memory_kafka import At, MemoryKafka
from tests.simulation.partition_log import LogRecord
from tests.simulation.recording import Applied, Buried, Expired, Fired, Refused
from tests.simulation.sequential_lane import SequentialLane, headers_for_machines, records_equal

if TYPE_CHECKING:
    from tests.simulation.recording import Action, RecordingBatch
    from tests.simulation.world import World

_CHANGELOG = STATE_CHANGELOG.name
_REPEATS = "repeats:"
_MOST_VIOLATIONS = 5

State = dict[bytes, bytes]


@dataclass
class LaneTransaction:
    """One committed transaction, as the changelog has it."""

    name: str
    changes: list[LogRecord] = field(default_factory=list)
    is_written_again: bool = False
    """By who made good an interrupted repair."""


def judge(world: World) -> list[str]:
    """What is wrong, one sentence each; empty when all is well."""
    found: list[str] = []
    for check in (_markers, _rereads, _lanes, _outputs_of_families):
        for violation in check(world):
            found.append(violation)
            if len(found) == _MOST_VIOLATIONS:
                return found
    return found


def _markers(world: World) -> Iterator[str]:
    """Nothing hangs: everybody can read everything."""
    for topic in TOPICS:
        for partition in range(world.partitions):
            log = world.kafka.log((topic, partition))
            if log.stable != log.end:
                yield f"hanging: {topic} {partition} can be read up to {log.stable} of {log.end}"


def _rereads(world: World) -> Iterator[str]:
    """A chunk that is lost or late costs one seek."""
    for process in world.processes:
        if process.consumer.rereads > process.consumer.reasons:
            yield (
                f"rereads: {process.name} sought {process.consumer.rereads} times "
                f"for {process.consumer.reasons} reasons"
            )


def _lanes(world: World) -> Iterator[str]:
    for partition in range(world.partitions):
        committed = transactions(world.kafka, partition)
        yield from _one_owner_at_a_time(partition, committed)
        yield from _progress(partition, committed)
        batches = [world.recording.batches[transaction.name] for transaction in committed]
        actions = [action for batch in batches for action in batch.actions]
        broken = list(_commands(world, partition, actions))
        yield from broken
        if broken:
            return
        lane = SequentialLane(world.rules, partition)
        try:
            _replay(lane, actions)
        except Exception as error:
            yield f"replay: lane {partition}: the sequential lane cannot do what was done: {error!r}"
            return
        yield from _firings(partition, batches, lane)
        yield from _outputs(world.kafka, partition, lane.outputs)
        state = _fold(world.kafka, partition)
        yield from _state(world, partition, state, lane)
        yield from _stores(world, partition, state)
        yield from _growth(world, partition, committed, lane, actions)


def transactions(kafka: MemoryKafka, partition: int) -> list[LaneTransaction]:
    """The committed transactions of a lane, in order."""
    found: list[LaneTransaction] = []
    for record in readable(kafka, (_CHANGELOG, partition)):
        if record.headers:
            repair = Repair.of(as_logged((_CHANGELOG, partition), record))
            names = repair.names if repair else names_in(_CHANGELOG, record.headers)
            own = [name for name in names if ":" not in name]
            if own and not (found and found[-1].name == own[0]):
                found.append(LaneTransaction(own[0], is_written_again=repair is not None))
        if found:
            found[-1].changes.append(record)
    return found


def readable(kafka: MemoryKafka, at: At) -> list[LogRecord]:
    """What was ever committed in a partition, but for the empty records of repairs.

    Records that were written again stand where they stood first. So do the replies that an interrupted repair has lost:
    who misses one sends the command again.
    """
    records = [record for record in kafka.log(at).archive if not record.is_marker]
    repairs = {
        record.offset: Repair.of(as_logged(at, record))
        for record in records
        if any(name == REPAIR for name, _ in record.headers)
    }
    lost: set[int] = set()
    for end in records:
        repair = repairs.get(end.offset)
        if at[0] == REPLIES.name and repair and repair.commit and not end.is_committed:
            lost.update(
                record.offset
                for record in records
                if repair.begin.offset <= record.offset < end.offset and record.writer == end.writer
            )
    found = []
    for record in records:
        if record.key != HEAL_KEY and (record.is_readable or record.offset in lost):
            repair = repairs.get(record.offset)
            found.append((repair.begin.offset if repair else record.offset, record))
    return [record for _, record in sorted(found, key=itemgetter(0))]


def _one_owner_at_a_time(partition: int, transactions: list[LaneTransaction]) -> Iterator[str]:
    """Once an opening has committed, no earlier one commits; within one, nothing in the middle is missing."""
    latest, number = "", 0
    seen: set[str] = set()
    for transaction in transactions:
        _, _, opening, count = transaction.name.split("-")
        if opening != latest:
            if opening in seen:
                yield f"owners: lane {partition}: {transaction.name} is committed after {latest} took over"
            seen.add(opening)
            latest, number = opening, 0
        number += 1
        if int(count) != number:
            yield f"owners: lane {partition}: {transaction.name} is committed, transaction {number} is not"
            number = int(count)


def _progress(partition: int, transactions: list[LaneTransaction]) -> Iterator[str]:
    """Every transaction has the lane's progress, and it only grows; but for one that was written once more behind the
    next one, without what that one has written too."""
    before, missing = None, 0
    for transaction in transactions:
        (data,) = [record.value for record in transaction.changes if record.key == PROGRESS.key()] or [None]
        if data is None and transaction.is_written_again:
            missing += 1
            continue
        if data is None:
            yield f"progress: lane {partition}: {transaction.name} does not say how far the lane is"
            continue
        progress = PROGRESS.decode(data)
        if before is not None:
            if progress.clock < before.clock:
                yield f"progress: lane {partition}: the clock goes back in {transaction.name}"
            if progress.transactions != before.transactions + 1 + missing:
                yield f"progress: lane {partition}: {transaction.name} has number {progress.transactions}"
            for topic, offset in before.watermarks.items():
                if progress.watermarks.get(topic, -1) < offset:
                    yield f"progress: lane {partition}: {topic} goes back in {transaction.name}"
        before, missing = progress, 0


def _commands(world: World, partition: int, actions: list[Action]) -> Iterator[str]:
    """The committed transactions took every committed command once, in order, but for what retention deleted."""
    for topic in world.rules.families:
        log = world.kafka.log((topic, partition))
        due = iter([record.offset for record in log.committed()])
        position = next(due, None)
        for action in actions:
            if isinstance(action, Expired) and action.topic == topic:
                if action.next > log.start:
                    yield f"expired: lane {partition}: {topic} is given up to {action.next}, kept from {log.start}"
                while position is not None and position < action.next:
                    position = next(due, None)
            elif isinstance(action, Applied | Refused) and action.record.topic == topic:
                if action.record.offset != position:
                    yield (
                        f"commands: lane {partition} took {topic} {action.record.offset} where {position} is due"
                    )
                    return
                position = next(due, None)
        if position is not None:
            yield f"commands: lane {partition} never took {topic} {position}"


def _replay(lane: SequentialLane, actions: list[Action]) -> None:
    for action in actions:
        if isinstance(action, Applied):
            lane.apply(action.record)
        elif isinstance(action, Refused):
            lane.refuse(action.record)
        elif isinstance(action, Fired):
            lane.fire_due(action.until, action.limit)
        elif isinstance(action, Buried):
            lane.bury_due(action.until)
        else:
            lane.skip_expired(action.topic, action.first, action.now)


def _firings(partition: int, batches: list[RecordingBatch], lane: SequentialLane) -> Iterator[str]:
    """Every timer fired once, at or after its time."""
    fired = [
        (timer.due, (timer.family, timer.key, timer.name))
        for batch in batches
        for timer in batch.fired
        if not timer.family.startswith(_REPEATS)
    ]
    due = [(due, at) for _, due, at in lane.fired]
    if fired != due:
        wrong = next((pair for pair in zip(fired, due, strict=False) if pair[0] != pair[1]), None)
        yield f"timers: lane {partition} fired {len(fired)}, due were {len(due)}; the first difference is {wrong}"


def _outputs(kafka: MemoryKafka, partition: int, expected: list[OutRecord]) -> Iterator[str]:
    """What the lane's transactions wrote, partition by partition, is what the sequential lane says."""
    due: defaultdict[tuple[str, int], list[OutRecord]] = defaultdict(list)
    for record in expected:
        due[record.topic, record.partition].append(record)
    writers = {lane_writer(partition, index) for index in range(2)}
    for topic in TOPICS:
        if topic == _CHANGELOG:
            continue
        for number in range(kafka.partitions):
            at = (topic, number)
            written = [_as_output(at, record) for record in readable(kafka, at) if record.writer in writers]
            yield from _differences(
                f"outputs: lane {partition} to {topic} {number}", due.pop(at, []), written
            )


def _as_output(at: tuple[str, int], record: LogRecord) -> OutRecord:
    return OutRecord(*at, record.key, record.value, record.headers)


def _differences(where: str, expected: list[OutRecord], written: list[OutRecord]) -> Iterator[str]:
    for index, (due, found) in enumerate(zip(expected, written, strict=False)):
        wanted = headers_for_machines(due.headers or ())
        if not records_equal(due, found) or wanted != headers_for_machines(found.headers or ()):
            yield f"{where}: record {index} is {_text(found)}, due is {_text(due)}"
            return
    if len(written) > len(expected):
        yield f"{where}: {len(written) - len(expected)} records too many, {_text(written[len(expected)])} first"
    elif len(written) < len(expected):
        yield f"{where}: {len(expected) - len(written)} are missing, {_text(expected[len(written)])} first"


def _text(record: OutRecord) -> str:
    return f"{record.key!r}: {record.value!r} {list(record.headers or ())}"


def _fold(kafka: MemoryKafka, partition: int) -> State:
    """What the changelog says, all of it, compacted or not."""
    state: State = {}
    for record in kafka.log((_CHANGELOG, partition)).committed():
        if record.value is None:
            state.pop(record.key or b"", None)
        else:
            state[record.key or b""] = record.value
    return state


def _state(world: World, partition: int, state: State, lane: SequentialLane) -> Iterator[str]:
    """The changelog's state is the sequential lane's."""
    own = {key: value for key, value in state.items() if not key.startswith(b"lane.")}
    for key in sorted(own.keys() | lane.state.keys()):
        if own.get(key) != lane.state.get(key):
            yield f"state: lane {partition}: {key!r} is {own.get(key)!r}, due is {lane.state.get(key)!r}"
            return
    timers = {
        (family, key, name): (due, TIMERS.decode(data).payload)
        for (due, family, key, name), data in _table(state, TIMERS)
        if not family.startswith(_REPEATS)
    }
    if timers != lane.timers:
        yield f"timers: lane {partition}: set are {timers}, due are {lane.timers}"
    names = {at: TIMERS_DUE.decode(data).due for at, data in _table(state, TIMERS_DUE)}
    both_ways = {(family, key, name): due for (due, family, key, name), _ in _table(state, TIMERS)}
    if names != both_ways:
        yield f"timers: lane {partition}: by name {names}, by time {both_ways}"


def _table(state: State, table: Any) -> list[tuple[Any, bytes]]:
    return [(table.parts(key), data) for key, data in state.items() if key.startswith(table.prefix)]


def _stores(world: World, partition: int, state: State) -> Iterator[str]:
    """The store of the lane's owner is the changelog's state."""
    for owner in world.owners(partition):
        stored = owner.node.disk[partition].data
        for key in sorted(stored.keys() | state.keys()):
            if stored.get(key) != state.get(key):
                yield (
                    f"store: lane {partition} of {owner.name} has {key!r}: {stored.get(key)!r}, "
                    f"the changelog {state.get(key)!r}"
                )
                return


def _growth(
    world: World,
    partition: int,
    transactions: list[LaneTransaction],
    lane: SequentialLane,
    actions: list[Action],
) -> Iterator[str]:
    """What is written is in proportion to commands and timers."""
    work = len(lane.fired) + sum(not isinstance(action, Fired) for action in actions)
    work += sum(TIMERS.parts(at)[1].startswith(_REPEATS) for at in _timers_ever(world.kafka, partition))
    if len(transactions) > work:
        yield f"growth: lane {partition}: {len(transactions)} transactions for {work} commands and timers"


def _timers_ever(kafka: MemoryKafka, partition: int) -> set[bytes]:
    """The keys of all timers that were ever set."""
    records = kafka.log((_CHANGELOG, partition)).committed()
    return {record.key or b"" for record in records if (record.key or b"").startswith(TIMERS.prefix)}


def _outputs_of_families(world: World) -> Iterator[str]:
    committed = {
        topic: [readable(world.kafka, (topic, partition)) for partition in range(world.partitions)]
        for topic in TOPICS
    }
    for simulated in simulated_families():
        for violation in simulated.invariants(committed):
            yield f"{simulated.name}: {violation}"
