"""Puts a worker together: settings in; a Faust app, the lanes of its partitions and the health pages out."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from faust.types.tuples import TP
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from schemas.topics import STATE_CHANGELOG, TopicSpec
from streams.cluster_watch import ClusterWatch
from streams.faust_adapter import LaneApp, LaneConsumer
from streams.faust_credentials import faust_credentials
from streams.lane_factory import LaneFactory
from streams.lane_host import LaneHost
from streams.lane_runner import BatchLimits
from streams.messaging.kafka_config import address_config
from streams.metrics import Metrics
from streams.predecessors import find_predecessors, worker_client_id
from streams.settings import Settings
from streams.topic_admin import TopicLayout

StreamHandler = Callable[[Any], Awaitable[None]]

EX_TEMPFAIL = 75
"""Exit code of a worker that has to be started again: its topics were deleted and made anew."""

_COMMIT_INTERVAL_S = 1.0
_STREAM_BUFFER = 1024
_FETCH_BYTES = 1024 * 1024


class WorkerApp:
    """One worker: Faust for membership and agents, lanes for state and commits."""

    def __init__(self, settings: Settings, layout: TopicLayout) -> None:
        """`layout` is what `topic_admin.require_usable` found."""
        self._settings = settings
        self._layout = layout
        self._factory = LaneFactory(settings, layout)
        self._topics = self._factory.topics
        folder = self._factory.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.metrics = Metrics(settings.rate_metrics_buckets)
        group = settings.name("lanes")
        client_id = worker_client_id(settings.client_id, settings.data_dir)
        connection = {**address_config(settings), "client.id": client_id}
        self.faust = LaneApp(
            group,
            short_names={settings.name(topic): topic for topic in self._topics},
            fetch_wait_ms=settings.fetch_wait_ms,
            shutdown_deadline_s=settings.shutdown_deadline_s,
            predecessors=find_predecessors(connection, group),
            on_closed=self._close,
            broker=[f"kafka://{address.strip()}" for address in connection["bootstrap.servers"].split(",")],
            broker_credentials=faust_credentials(settings),
            datadir=str(folder / "faust"),
            topic_partitions=layout.partitions,
            broker_client_id=client_id,
            broker_session_timeout=settings.session_timeout_ms / 1000,
            broker_heartbeat_interval=settings.heartbeat_interval_ms / 1000,
            broker_commit_interval=_COMMIT_INTERVAL_S,
            consumer_max_fetch_size=_FETCH_BYTES,
            stream_buffer_maxsize=_STREAM_BUFFER,
            web_bind=settings.web_host,
            web_host=settings.web_host,
            web_port=settings.web_port,
        )
        # From the start: Faust asks for watermarks also while it waits for its first assignment.
        self._lanes = self.faust.lanes = LaneHost(
            self._topics,
            self._factory.make,
            _FaustPositions(self.faust),
            self.metrics,
            limits=BatchLimits(settings.max_batch_commands, settings.max_batch_bytes),
            max_pending=settings.max_pending_commands,
            max_commits=settings.max_concurrent_commits,
            stall_alarm_s=settings.stall_alarm_s,
            cluster=ClusterWatch(
                connection,
                tuple(settings.name(topic) for topic in (*self._topics, STATE_CHANGELOG.name)),
                layout.partitions,
            ),
        )
        self.faust.on_partitions_assigned.connect(self._assigned)
        self._add_pages()

    def agent(self, topic: TopicSpec) -> Callable[[StreamHandler], StreamHandler]:
        """Decorator: declare the function as the agent of a command topic, under the function's name."""

        def declare(handler: StreamHandler) -> StreamHandler:
            source = self.faust.topic(
                self._settings.name(topic.name),
                key_serializer="raw",
                value_serializer="raw",
                partitions=self._layout.partitions,
            )
            self.faust.agent(source, name=handler.__name__)(handler)
            return handler

        return declare

    def route(self, event: Any) -> None:
        """Give an agent's event, a chunk, to the lane of its partition."""
        self._lanes.route(event.message.partition, event.value)

    async def _assigned(self, app: LaneApp, assigned: set[TP], **_: Any) -> None:
        names = app.short_names
        await self._lanes.assign({tp.partition for tp in assigned if tp.topic in names})

    async def _close(self) -> None:
        await self._lanes.close()
        if self._lanes.must_restart:
            # The group is left and the lanes are closed; a supervisor starts the worker again.
            os._exit(EX_TEMPFAIL)

    def _add_pages(self) -> None:
        app, started = self.faust, time.time()

        @app.page("/health/live", name="live")
        async def live(web: Any, request: Any) -> Any:
            """200 while the worker can do its work or get back to it by itself; 503 when only a restart helps."""
            halted = self._lanes.is_halted
            body = {
                "status": "halted" if halted else "live",
                "uptimeSeconds": round(time.time() - started, 1),
            }
            return web.json(body, status=503 if halted else 200)

        @app.page("/health/ready", name="ready")
        async def ready(web: Any, request: Any) -> Any:
            """200 only when every owned lane has restored and serves; also with none owned."""
            problems = self._lanes.problems()
            body = {
                "status": "not ready" if problems else "ready",
                "problems": problems,
                "lanes": self._lanes.lanes(),
            }
            return web.json(body, status=503 if problems else 200)

        @app.page("/metrics", name="metrics")
        async def metrics(web: Any, request: Any) -> Any:
            """The worker's metrics in Prometheus' text format."""
            kind = CONTENT_TYPE_LATEST.partition(";")[0]
            return web.bytes(generate_latest(self.metrics.registry), content_type=kind)


class _FaustPositions:
    """`streams.lane_host.Positions` by the consumer of a Faust app."""

    def __init__(self, app: LaneApp) -> None:
        self._app = app

    async def seek(self, partition: int, offsets: Mapping[str, int]) -> dict[str, int]:
        consumer: LaneConsumer = self._app.consumer
        wanted = {self._app.tp(topic, partition): offset for topic, offset in offsets.items()}
        epochs = await consumer.seek_tagged(wanted)
        return {self._app.short_names[tp.topic]: epoch for tp, epoch in epochs.items()}

    def delivered(self, topic: str, partition: int) -> int | None:
        consumer: LaneConsumer = self._app.consumer
        return consumer.delivered(self._app.tp(topic, partition))

    def end(self, topic: str, partition: int) -> int | None:
        consumer: LaneConsumer = self._app.consumer
        try:
            end: int | None = consumer.highwater(self._app.tp(topic, partition))
        except Exception:
            # aiokafka raises several kinds while an assignment changes; the watch asks again.
            return None
        return end
