"""The executor of the demo, as a real process."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from streams.child_process import RunlaneProcess
from streams.settings import Settings


class DemoExecutor(RunlaneProcess):
    """`runlane executor` with the demo's function."""

    def __init__(self, folder: Path, settings: Settings, place: str) -> None:
        """`place` is `module:app`."""
        self._group = settings.name(settings.executor_group)
        self._admin = AdminClient({"bootstrap.servers": settings.brokers, "client.id": settings.client_id})
        super().__init__(["executor", place], folder, settings)

    def is_ready(self) -> bool:
        """Whether it is the member of its group that has the partitions."""
        try:
            group = self._admin.describe_consumer_groups([self._group])[self._group].result()
        except KafkaException:
            return False
        return group.state == ConsumerGroupState.STABLE and any(
            member.assignment.topic_partitions for member in group.members
        )
