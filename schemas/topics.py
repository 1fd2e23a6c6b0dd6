"""The topics of runlane, read from `schemas/topics/*.yaml` (wire spec section 6).

One file describes one topic; provisioning, code and docs all read that file. Code names a topic by the
constants below (`RUN_EVENTS.name`); `Settings.name` adds the prefix.
"""

from __future__ import annotations

from importlib import resources
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

TopicFamily = Literal["commands", "outputs", "state", "replies"]


class TopicSpec(BaseModel):
    """One topic: what it is for, who writes and reads it, and how the broker keeps it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = Field(pattern=r"^[a-z][a-z-]*$", description="Name without the prefix.")
    family: TopicFamily
    purpose: str = Field(min_length=1)
    key: str = Field(min_length=1, description="What the record's key is.")
    id_field: str | None = Field(
        None, alias="idField", description="Commands: the field of the value that equals the key."
    )
    values: tuple[str, ...] = Field(min_length=1, description="Names of the schemas of the record's value.")
    producers: tuple[str, ...] = Field(min_length=1)
    consumers: tuple[str, ...] = Field(min_length=1)
    exclusive: bool = Field(
        description="Partition p is written by lane p alone: when it opens, nothing may hang there."
    )
    partitions: int | None = Field(None, ge=1, description="Null: as many as the setting `partitions`.")
    settings: dict[str, str] = Field(description="Topic settings of the broker, by Kafka's names.")

    @property
    def delete_retention_ms(self) -> int:
        """How long a compacted topic keeps deletions, in ms; Kafka's default of 24 h when not set."""
        return int(self.settings.get("delete.retention.ms", 86_400_000))

    @property
    def max_message_bytes(self) -> int:
        """The largest record batch that the broker takes, in bytes."""
        return int(self.settings["max.message.bytes"])


def _load() -> dict[str, TopicSpec]:
    folder = resources.files("schemas").joinpath("topics")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    specs = {}
    for file in files:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        raw["settings"] = {key: str(value) for key, value in raw["settings"].items()}
        spec = TopicSpec.model_validate(raw)
        if f"{spec.name}.yaml" != file.name:
            raise ValueError(
                f"schemas/topics/{file.name} describes {spec.name!r}: name the file after its topic"
            )
        specs[spec.name] = spec
    return specs


TOPICS: Final[dict[str, TopicSpec]] = _load()
"""Every topic by its name without the prefix."""

RUN_COMMANDS: Final = TOPICS["run-commands"]
RATE_COMMANDS: Final = TOPICS["rate-commands"]
POOL_COMMANDS: Final = TOPICS["pool-commands"]
QUEUE_COMMANDS: Final = TOPICS["queue-commands"]
HOOK_COMMANDS: Final = TOPICS["hook-commands"]
STREAM_COMMANDS: Final = TOPICS["stream-commands"]
RUN_EVENTS: Final = TOPICS["run-events"]
RUN_TERMINALS: Final = TOPICS["run-terminals"]
RUN_DISPATCH: Final = TOPICS["run-dispatch"]
QUEUE_DELIVERIES: Final = TOPICS["queue-deliveries"]
REPLIES: Final = TOPICS["replies"]
DEAD_LETTERS: Final = TOPICS["dead-letters"]
STATE_CHANGELOG: Final = TOPICS["state-changelog"]

COMMAND_TOPICS: Final = tuple(spec for spec in TOPICS.values() if spec.family == "commands")
"""The topics that lanes read, in the order of their names."""

OUTPUT_TOPICS: Final = tuple(spec for spec in TOPICS.values() if spec.family != "commands")
"""The topics that lanes write, except commands to other keys."""

EXCLUSIVE_TOPICS: Final = tuple(spec for spec in TOPICS.values() if spec.exclusive)
"""The topics of which only lane p writes partition p."""

LANE_TOPICS: Final = tuple(spec for spec in TOPICS.values() if spec.partitions is None)
"""The topics that must all have the same number of partitions."""
