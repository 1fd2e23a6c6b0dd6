"""Sixty faults of all kinds under load, on a broker of their own, and the topics judged three times.

Among the sixty are the twenty kills of workers, with and without their disks, the workers that wake up while others
own their partitions, the ten visits of one more worker and the broker that is killed. By the account of what was
sent, by `runlane verify`, and by a checker that shares no code with any of it: every command took effect exactly once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient

from schemas.topics import RUN_COMMANDS
from streams.settings import Settings
from streams.torture.ordeal import Outcome, Torture, TortureOptions
from streams.torture.run_load import DRIVEN
from streams.torture.schedule import FaultKind
from streams.torture.sender import SentRecord
from tests.contract.transactional_ids import transactional_ids
from tests.crash.checker import violations
from tests.crash.history import SentCommand
from tests.crash.reading import read_history

OPTIONS = TortureOptions(
    faults=60,
    seed=60,
    workers=2,
    executors=2,
    partitions=3,
    rate=60,
    pace_s=0.8,
    alone=0.2,
)
RULES = {
    "command", "forward", "dead-letter", "origin", "seq", "after-end", "order", "twice", "terminal", "dispatch",
    "state", "stored", "count", "bucket", "permits", "lease", "fencing", "reply", "watermark", "partition", "schema",
}  # fmt: skip


def test_every_command_takes_effect_once_whatever_is_killed_frozen_or_cut_off() -> None:
    torture = Torture(Settings(brokers=None, prefix=""), OPTIONS, step=print, judges=[checker, names])
    outcome = asyncio.run(torture.run())
    assert not outcome.problems, "\n".join([f"logs and data: {outcome.folder}", *outcome.problems[:20]])
    require_all_of_it(outcome)


def checker(settings: Settings, sent: Sequence[SentRecord]) -> list[str]:
    """What the independent checker says of the runs that the client drives."""
    acknowledged = (
        SentCommand(record.partition, record.offset, record.key, record.value, record.headers)
        for record in sent
        if record.topic == RUN_COMMANDS.name
    )
    history = read_history(settings.brokers or "", settings.prefix, settings.partitions, acknowledged)
    return [str(violation) for violation in violations(history, DRIVEN.encode())]


def names(settings: Settings, sent: Sequence[SentRecord]) -> list[str]:
    """With an empty prefix, names have none."""
    admin = AdminClient({"bootstrap.servers": settings.brokers})
    topics = {name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")}
    groups = {group.group_id for group in admin.list_consumer_groups().result().valid}
    lanes = {f"lane-{partition}-{number}" for partition in range(settings.partitions) for number in range(2)}
    found = [f"no topic {name}" for name in {"run-commands", "run-events", "state-changelog"} - topics]
    found += [f"the groups are {groups}"] * ("lanes" not in groups)
    ids = transactional_ids(settings.brokers or "", "lane-")
    return found + [f"the transactional ids are {ids}"] * (ids != lanes)


def require_all_of_it(outcome: Outcome) -> None:
    """It must not have tested less than it says."""
    struck = Counter(window.fault.kind for window in outcome.windows)
    assert struck.total() == OPTIONS.faults
    assert set(struck) == set(FaultKind)
    assert sum(count for kind, count in struck.items() if kind.startswith("worker-killed")) == 20
    assert struck[FaultKind.WORKER_VISITS] == 10
    assert all(window.closed_at is not None for window in outcome.windows)
    account = outcome.account
    assert account.acknowledged == sum(account.sent.values())
    assert min(account.applied, account.answered, account.buried, account.other_events) > 0
    assert outcome.counts["permits granted"] > outcome.counts["of these in leases"] > 0
    assert outcome.counts["over-grants"] == 0
    checked = {rule.name for rule, count in outcome.verified.rules.items() if count.checked}
    assert checked >= RULES
