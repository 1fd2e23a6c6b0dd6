"""How a lane calls Kafka's clients: what it has to know of the cluster, which errors pass, which lose the lane."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from schemas.topics import TOPICS
from streams.ports import FencedError, LaneLostError

CALL_S = 10.0
"""Time limit of one call; calls that only met an absent broker are made again."""

PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    # Leaders move, and a topic that was just made has none yet.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Errors that go away by themselves, though the client does not say so of all of them."""

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


@dataclass(frozen=True)
class LaneKafkaConfig:
    """What all lanes of a worker need to know of the cluster."""

    connection: Mapping[str, Any] = field(repr=False)
    """Options of the native client: the brokers, its client id, TLS and SASL."""
    partitions: int
    """Of every topic that lanes read or write."""
    full_name: Callable[[str], str]
    """Topic or transactional id without prefix -> with prefix."""
    transaction_timeout_ms: int
    names: dict[str, str] = field(init=False)
    """Topic without prefix -> with prefix."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", {name: self.full_name(name) for name in TOPICS})


def passes(error: KafkaError) -> bool:
    """Whether an error goes away when the call is made again."""
    return bool(error.retriable() or error.code() in PASSING) and not error.fatal()


def patiently(what: str, call: Callable[[], Any], stopping: Callable[[], bool]) -> Any:
    """Call until it succeeds or fails for good; a broker that is away is waited for, until `stopping()`.

    Raises `LaneLostError`, whose text begins with `what`.
    """
    pause = 0.05
    while True:
        try:
            return call()
        except KafkaException as error:
            if not passes(error.args[0]) or stopping():
                raise lost(what, error) from error
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def lost(what: str, error: KafkaException) -> LaneLostError:
    """The error of the port that a client's error stands for."""
    cause = error.args[0]
    kind = FencedError if cause.code() in _FENCED else LaneLostError
    return kind(f"{what}: {cause.name()}: {cause.str()}")
