"""Topics on the broker: make the missing ones, report drift, refuse unequal partition counts.

What a topic has to be is written in `schemas/topics/*.yaml`; nothing here changes a topic that exists.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType
from tenacity import RetryError, Retrying, retry_if_exception, stop_after_delay, wait_fixed

from schemas.topics import LANE_TOPICS, RUN_COMMANDS, STATE_CHANGELOG, TOPICS, TopicSpec
from streams.messaging.kafka_config import address_config
from streams.settings import Settings
from streams.user_errors import UserError

_REQUEST_PATIENCE_S = 10.0
_log = logging.getLogger(__name__)

# A broker that just starts answers with these before it can do what is asked.
_PASSING_ERRORS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.INVALID_REPLICATION_FACTOR,
    # A topic that was just made shows on the brokers one after another.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}

T = TypeVar("T")


@dataclass(frozen=True)
class Drift:
    """One way in which a topic on the broker differs from its description."""

    topic: str
    what: Literal["missing", "partitions", "setting"]
    setting: str | None
    """The broker's name of the setting; None for `missing` and `partitions`."""
    expected: str
    actual: str

    def __str__(self) -> str:
        if self.what == "missing":
            return f"{self.topic} does not exist"
        return f"{self.topic}: {self.setting or 'partitions'} is {self.actual}, not {self.expected}"


@dataclass(frozen=True)
class TopicReport:
    """What `apply` or `check` found; names are as on the broker, with the prefix."""

    brokers: str
    created: list[str] = field(default_factory=list)
    existing: list[str] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)


class BrokerAwayError(UserError):
    """No broker answered."""


class TopicLayoutError(UserError):
    """The topics on the broker cannot be worked with as they are."""


def topic_name(spec: TopicSpec, settings: Settings) -> str:
    """The topic's name on the broker, with the prefix."""
    return settings.name(spec.name)


def partition_count(spec: TopicSpec, settings: Settings) -> int:
    """How many partitions the topic is to have."""
    return spec.partitions or settings.partitions


def topic_settings(spec: TopicSpec, settings: Settings) -> dict[str, str]:
    """The topic's settings on the broker, by Kafka's names."""
    # With three replicas or more an acknowledged record is on two of them; with fewer, that would stop
    # every write as soon as one broker is away.
    in_sync = "2" if settings.replication_factor >= 3 else "1"
    return {"min.insync.replicas": in_sync, **spec.settings}


def apply(settings: Settings, *, patience_s: float = 30.0) -> TopicReport:
    """Create every missing topic and wait until all can be used; report drift of those that existed.

    Idempotent, also when several processes do it at once. Waits up to `patience_s` for a broker that is
    just starting. Raises `UserError` when it does not answer or refuses.
    """
    admin = _Cluster(settings)
    before = _patiently(lambda: _partitions_by_topic(admin, patience_s), admin, patience_s)
    missing = [spec for spec in TOPICS.values() if topic_name(spec, settings) not in before]
    created = []
    if missing:
        created = _patiently(lambda: _create(admin, missing, settings), admin, patience_s)
        _wait_until_usable(admin, [topic_name(spec, settings) for spec in missing], patience_s)
    found = check(settings, patience_s=patience_s)
    existing = [name for name in found.existing if name not in created]
    return TopicReport(brokers=admin.brokers, created=created, existing=existing, drift=found.drift)


def check(settings: Settings, *, patience_s: float = 30.0) -> TopicReport:
    """Compare all topics with their descriptions; changes nothing. Raises `UserError` as `apply` does."""
    admin = _Cluster(settings)
    counts = _patiently(lambda: _partitions_by_topic(admin, patience_s), admin, patience_s)
    present = [spec for spec in TOPICS.values() if topic_name(spec, settings) in counts]
    drift = [
        Drift(topic_name(spec, settings), "missing", None, str(partition_count(spec, settings)), "0")
        for spec in TOPICS.values()
        if spec not in present
    ]
    for spec in present:
        name, expected = topic_name(spec, settings), partition_count(spec, settings)
        if counts[name] != expected:
            drift.append(Drift(name, "partitions", None, str(expected), str(counts[name])))
    configs = _patiently(
        lambda: _configs(admin, [topic_name(spec, settings) for spec in present]), admin, patience_s
    )
    for spec in present:
        drift += _setting_drift(topic_name(spec, settings), topic_settings(spec, settings), configs)
    return TopicReport(admin.brokers, existing=[topic_name(spec, settings) for spec in present], drift=drift)


def require_equal_partitions(settings: Settings, *, patience_s: float = 30.0) -> int:
    """The partition count that all lane topics share; workers call this before they start.

    Raises `TopicLayoutError` that names the topics and their counts and says what to do when a topic is
    missing, when the counts differ, or when they are not the setting `partitions`.
    """
    admin = _Cluster(settings)
    deadline = time.monotonic() + patience_s
    counts = _patiently(
        lambda: _partitions_by_topic(admin, max(0.1, deadline - time.monotonic())), admin, patience_s
    )
    names = [topic_name(spec, settings) for spec in LANE_TOPICS]
    if missing := [name for name in names if name not in counts]:
        raise TopicLayoutError(
            f"Topics are missing on {admin.brokers}: {', '.join(missing)}.",
            "make them with `runlane topics apply`",
        )
    by_count: dict[int, list[str]] = {}
    for name in names:
        by_count.setdefault(counts[name], []).append(name)
    if len(by_count) > 1:
        listed = "; ".join(f"{count}: {', '.join(by_count[count])}" for count in sorted(by_count))
        raise TopicLayoutError(
            f"Topics on {admin.brokers} have unequal partition counts ({listed}).",
            "partition p of all of them belongs to lane p, so the counts must be equal: delete the wrong "
            "topics and run `runlane topics apply`, or use another prefix; do not add partitions to a topic "
            "in use, since keys would go to other lanes than those that hold their state",
        )
    count = next(iter(by_count))
    if count != settings.partitions:
        raise TopicLayoutError(
            f"The topics on {admin.brokers} have {count} partitions, but the setting `partitions` is "
            f"{settings.partitions}.",
            f"set RUNLANE_PARTITIONS={count}",
        )
    return count


def prefixes(settings: Settings, *, patience_s: float = 30.0) -> list[str]:
    """The prefixes for which there are topics of runlane on the brokers. Raises `UserError` as `apply` does."""
    admin = _Cluster(settings)
    counts = _patiently(lambda: _partitions_by_topic(admin, patience_s), admin, patience_s)
    ending = f"-{RUN_COMMANDS.name}"
    found = [name.removesuffix(ending) for name in counts if name.endswith(ending)]
    return sorted([*found, ""] if RUN_COMMANDS.name in counts else found)


@dataclass(frozen=True)
class TopicLayout:
    """What a worker needs to know of the topics on the broker."""

    partitions: int
    """Of every lane topic."""
    deletions_kept_ms: int
    """`delete.retention.ms` of the changelog, as it is in force."""


def require_usable(settings: Settings, *, patience_s: float = 30.0) -> TopicLayout:
    """What a worker works with; raises `TopicLayoutError` when it cannot work with the topics as they are."""
    partitions = require_equal_partitions(settings, patience_s=patience_s)
    admin = _Cluster(settings)
    command_topics = [topic_name(spec, settings) for spec in TOPICS.values() if spec.family == "commands"]
    changelog = topic_name(STATE_CHANGELOG, settings)
    configs = _patiently(lambda: _configs(admin, [*command_topics, changelog]), admin, patience_s)
    client_timed = [
        name for name in command_topics if configs[name]["message.timestamp.type"][0] != "LogAppendTime"
    ]
    if client_timed:
        raise TopicLayoutError(
            f"These topics take the time of a command from its client: {', '.join(client_timed)}.",
            "set message.timestamp.type=LogAppendTime on them: one wrong clock would fire every timer",
        )
    return TopicLayout(partitions, int(configs[changelog]["delete.retention.ms"][0]))


def delete(settings: Settings, *, patience_s: float = 30.0) -> list[str]:
    """Delete every topic of this prefix that exists, with all its records; returns their names."""
    admin = _Cluster(settings)
    counts = _patiently(lambda: _partitions_by_topic(admin, patience_s), admin, patience_s)
    names = [name for spec in TOPICS.values() if (name := topic_name(spec, settings)) in counts]
    if not names:
        return []
    for name, future in admin.delete_topics(names, operation_timeout=_REQUEST_PATIENCE_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UserError(f"Topic {name} could not be deleted: {error.args[0].str()}") from error
    return names


class _Cluster(AdminClient):  # type: ignore[misc]
    """An admin client that can say why brokers do not let it in; its calls only tell that they were not answered."""

    def __init__(self, settings: Settings) -> None:
        """Raises `UserError` when there are no brokers, or settings that do not fit together."""
        config = address_config(settings)
        self.brokers: str = config["bootstrap.servers"]
        self.trouble: str | None = None
        """The last word on a connection that failed after it was made."""
        self._is_refused = False
        super().__init__({**config, "error_cb": self._failed}, logger=_log)

    def is_refused(self) -> bool:
        """Whether a broker does not believe that the client is whom it says."""
        self.poll(0)
        return self._is_refused

    def _failed(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.trouble = error.str()
            self._is_refused = error.code() == KafkaError._AUTHENTICATION


def _patiently(work: Callable[[], T], admin: _Cluster, patience_s: float) -> T:
    """Do `work`, again while the broker is only starting; a clear error when it takes too long."""

    def passing(error: BaseException) -> bool:
        return (
            isinstance(error, KafkaException)
            and error.args[0].code() in _PASSING_ERRORS
            and not admin.is_refused()
        )

    retrying = Retrying(
        retry=retry_if_exception(passing), stop=stop_after_delay(patience_s), wait=wait_fixed(0.25)
    )
    try:
        return retrying(work)
    except RetryError as error:
        cause = error.last_attempt.exception()
        reason = cause.args[0].str() if isinstance(cause, KafkaException) else str(cause)
        raise BrokerAwayError(
            f"No Kafka broker answered at {admin.brokers} within {patience_s:.0f} s: {admin.trouble or reason}.",
            "check the address, and that the broker runs (`runlane broker status` for the local one)",
        ) from error
    except KafkaException as error:
        if admin.is_refused():
            raise UserError(
                f"The broker at {admin.brokers} does not take this client: {admin.trouble}.",
                "correct RUNLANE_SASL_USERNAME, RUNLANE_SASL_PASSWORD or RUNLANE_SASL_MECHANISM",
            ) from error
        raise UserError(f"The broker at {admin.brokers} refused: {error.args[0].str()}.") from error


def _partitions_by_topic(admin: AdminClient, patience_s: float) -> dict[str, int]:
    metadata = admin.list_topics(timeout=min(patience_s, _REQUEST_PATIENCE_S))
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _create(admin: AdminClient, specs: list[TopicSpec], settings: Settings) -> list[str]:
    futures = admin.create_topics(
        [
            NewTopic(
                topic_name(spec, settings),
                num_partitions=partition_count(spec, settings),
                replication_factor=settings.replication_factor,
                config=topic_settings(spec, settings),
            )
            for spec in specs
        ],
        request_timeout=_REQUEST_PATIENCE_S,
    )
    created = []
    for name, future in futures.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            # Another process was faster, or the answer to an earlier attempt was lost.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created


def _wait_until_usable(admin: _Cluster, names: list[str], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        topics = _patiently(lambda: admin.list_topics(timeout=_REQUEST_PATIENCE_S).topics, admin, patience_s)
        waiting = [
            name
            for name in names
            if name not in topics
            or not topics[name].partitions
            or any(partition.leader < 0 for partition in topics[name].partitions.values())
        ]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise UserError(
                f"Topics on {admin.brokers} have no leader after {patience_s:.0f} s: {', '.join(waiting)}.",
                "look at the broker's log",
            )
        time.sleep(0.05)


def _configs(admin: AdminClient, names: list[str]) -> dict[str, dict[str, tuple[str, bool]]]:
    """Per topic the broker's settings: name -> (value, whether it was set on the topic itself)."""
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=_REQUEST_PATIENCE_S)
    return {
        resource.name: {
            entry.name: (entry.value, entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
            for entry in future.result().values()
        }
        for resource, future in answers.items()
    }


def _setting_drift(
    name: str, expected: dict[str, str], configs: dict[str, dict[str, tuple[str, bool]]]
) -> list[Drift]:
    actual = configs[name]
    drift = [
        Drift(name, "setting", setting, value, actual[setting][0] if setting in actual else "unknown")
        for setting, value in expected.items()
        if setting not in actual or actual[setting][0] != value
    ]
    drift += [
        Drift(name, "setting", setting, "the broker's default", value)
        for setting, (value, set_on_topic) in actual.items()
        if set_on_topic and setting not in expected
    ]
    return drift
