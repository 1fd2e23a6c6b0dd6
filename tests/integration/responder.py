"""A stand-in for the coordinator that speaks the wire contract on the real broker, by a script.

For what a real coordinator does not do on demand: silence, strange answers, answers to somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from streams.settings import Settings

Script = Callable[[dict[str, Any]], dict[str, Any] | None]
"""From a command's JSON to the reply's `result`, or None for silence."""


class Responder:
    """Answers commands in a thread; `commands` holds every one that came, with its headers, in order."""

    def __init__(self, settings: Settings, script: Script) -> None:
        self.commands: list[tuple[dict[str, Any], dict[str, bytes]]] = []
        self._settings = settings
        self._script = script
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.producer = Producer({"bootstrap.servers": settings.brokers, "linger.ms": 0})

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20), "the responder did not get its partitions"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.producer.flush(10)

    def reply(self, headers: dict[str, bytes], body: dict[str, Any]) -> None:
        """Send a reply to the address in a command's headers."""
        self.producer.produce(
            self._settings.name("replies"),
            orjson.dumps(body),
            headers["correlation-id"],
            partition=int(headers["reply-partition"]),
            headers=[("correlation-id", headers["correlation-id"])],
        )
        self.producer.poll(0)

    def _serve(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._settings.brokers, "group.id": "responder", "fetch.wait.max.ms": 20}
        )
        topic = self._settings.name("run-commands")
        places = [TopicPartition(topic, number, 0) for number in range(self._settings.partitions)]
        consumer.assign(places)
        self._ready.set()
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            if message is None or message.error():
                continue
            body = orjson.loads(message.value())
            headers = dict(message.headers() or [])
            self.commands.append((body, headers))
            result = self._script(body)
            if result is not None and headers:
                self.reply(headers, {"commandId": body["commandId"], "ok": True, "result": result})
        consumer.close()
