"""What every benchmark works with: a broker, folders, topics of its own, and a way to say how far it is."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from schemas.topics import TopicSpec
from streams import topic_admin
from streams.broker import local_broker
from streams.messaging.kafka_config import address_config
from streams.messaging.topic_positions import TopicPositions
from streams.settings import Settings

_CALL_S = 15.0


class Workbench:
    """A broker that is in use for benchmarks alone, unless one was given."""

    def __init__(self, settings: Settings, folder: Path, console: Console, broker_pid: int | None) -> None:
        """`settings` name the brokers; `console` gets what people want to know meanwhile."""
        self.settings = settings
        self.folder = folder
        self.broker_pid = broker_pid
        """Process id of the broker; None for given brokers."""
        self._console = console

    @property
    def brokers(self) -> str:
        """Bootstrap servers."""
        return self.settings.brokers or ""

    @property
    def partitions(self) -> int:
        """Partitions of every topic."""
        return self.settings.partitions

    def positions(self) -> TopicPositions:
        """Something that asks for offsets; a fresh one, which knows nothing of topics that are gone."""
        return TopicPositions(self.settings)

    def step(self, message: str) -> None:
        """Say what is being done."""
        self._console.print(f"[dim]{escape(message)} ...[/dim]")

    @contextmanager
    def bar(self, what: str, total: float) -> Iterator[Callable[[float], None]]:
        """A progress bar on a terminal; the function that is handed out takes how far it is."""
        self.step(what)
        progress = Progress(console=self._console, transient=True, disable=not self._console.is_terminal)
        with progress:
            task = progress.add_task(escape(what), total=total)
            yield lambda done: progress.update(task, completed=done)

    @contextmanager
    def site(self, name: str) -> Iterator[tuple[Settings, Path]]:
        """Settings with a fresh prefix and its topics, and a folder; both are gone afterwards."""
        prefix = f"bench-{name}-{uuid.uuid4().hex[:8]}"
        folder = self.folder / prefix
        settings = self.settings.model_copy(update={"prefix": prefix, "data_dir": folder / "data"})
        topic_admin.apply(settings)
        try:
            yield settings, folder
        finally:
            self._delete_topics(prefix)
            shutil.rmtree(folder, ignore_errors=True)

    def make_topics(self, settings: Settings, likes: Mapping[str, TopicSpec]) -> None:
        """Make further topics of a site, each with the settings of a topic of runlane."""
        admin = self._admin()
        made = admin.create_topics(
            [
                NewTopic(
                    settings.name(name),
                    num_partitions=self.partitions,
                    replication_factor=settings.replication_factor,
                    config=topic_admin.topic_settings(like, settings),
                )
                for name, like in likes.items()
            ],
            operation_timeout=_CALL_S,
        )
        for future in made.values():
            future.result()

    def _delete_topics(self, prefix: str) -> None:
        """Also those that a baseline made for itself."""
        admin = self._admin()
        names = [name for name in admin.list_topics(timeout=_CALL_S).topics if name.startswith(f"{prefix}-")]
        if not names:
            return
        for future in admin.delete_topics(names, operation_timeout=_CALL_S).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def _admin(self) -> AdminClient:
        return AdminClient(address_config(self.settings))


@contextmanager
def workbench(settings: Settings, console: Console) -> Iterator[Workbench]:
    """A workbench with a fresh local broker that is removed afterwards, or with the brokers of `settings`."""
    cache = Path(platformdirs.user_cache_dir("runlane"))
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=cache))
    own = None if settings.brokers else settings.model_copy(update={"broker_dir": folder / "broker"})
    try:
        pid = None
        if own is not None:
            info = local_broker.up(own, lambda message: console.print(f"[dim]{escape(message)} ...[/dim]"))
            settings, pid = settings.model_copy(update={"brokers": info.address}), info.pid
        yield Workbench(settings, folder, console, pid)
    finally:
        if own is not None:
            local_broker.down(own)
        shutil.rmtree(folder, ignore_errors=True)
