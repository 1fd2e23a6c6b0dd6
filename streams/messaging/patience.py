"""Ask Kafka again while it is only not ready: starting, electing a leader, or hearing of a new topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from tenacity import RetryError, Retrying, retry_if_exception, stop_after_delay, wait_fixed

from streams.user_errors import UserError

T = TypeVar("T")

_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def patiently(work: Callable[[], T], what: str, patience_s: float) -> T:
    """Do `work` (blocking), again for up to `patience_s` while Kafka is not ready.

    Raises `UserError` that says `what` was asked when it takes longer; other errors of Kafka pass.
    """

    def passing(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in _PASSING

    retrying = Retrying(
        retry=retry_if_exception(passing), stop=stop_after_delay(patience_s), wait=wait_fixed(0.1)
    )
    try:
        return retrying(work)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise UserError(
            f"Kafka did not answer within {patience_s:g} s when asked for {what}: {cause}",
            "check that the brokers run and that their advertised addresses can be reached from here",
        ) from cause
