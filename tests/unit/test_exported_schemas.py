"""The exported JSON Schemas: fresh, complete, and right about what they describe."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from schemas import stored
from schemas.export import exported
from schemas.rate_commands import RATE_COMMANDS
from schemas.rate_results import RATE_RESULTS
from schemas.run_commands import RUN_COMMANDS
from schemas.run_results import RUN_RESULTS
from schemas.topics import TOPICS

SCHEMAS: dict[str, Any] = {name: json.loads(content) for name, content in exported().items()}

_WITHOUT = {"any bytes", "QueueDelivery"} | {
    f"Any{name}Command" for name in ("Pool", "Queue", "Hook", "Stream")
}
"""Values that have no schema: any bytes, and what later versions define."""


def test_the_committed_files_are_fresh() -> None:
    folder = resources.files("schemas").joinpath("exported")
    committed = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(".json")}
    assert committed == exported(), "run `runlane schemas export`, and delete files that it does not name"


def test_every_topic_command_and_result_has_a_schema() -> None:
    topics = {f"topic.{name}.json" for name, spec in TOPICS.items() if not _WITHOUT & set(spec.values)}
    types = [*RUN_COMMANDS.by_type, *RATE_COMMANDS.by_type]
    commands = {f"command.{type_}.json" for type_ in types}
    results = {f"result.{type_}.json" for type_ in types}
    assert set(SCHEMAS) == topics | commands | results
    assert set(RUN_RESULTS) == set(RUN_COMMANDS.by_type)
    assert set(RATE_RESULTS) == set(RATE_COMMANDS.by_type)


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_json_schema_with_words_for_people(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["description"]
    if name.startswith("topic."):
        assert schema["description"] == TOPICS[name.removeprefix("topic.").removesuffix(".json")].purpose


def test_every_stored_record_is_described_with_its_version_and_its_fields() -> None:
    definitions = SCHEMAS["topic.state-changelog.json"]["$defs"]
    records = {
        name
        for name, value in vars(stored).items()
        if isinstance(value, type) and issubclass(value, stored.Stored) and value is not stored.Stored
    }
    assert records <= set(definitions)
    head = definitions["RunHead"]["properties"]
    assert head["v"] == {"enum": [1]}
    assert "may write" in head["attempt"]["description"]


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ({"type": "run.submit", "commandId": "c", "runId": "r", "name": "x", "params": [1]}, True),
        ({"type": "run.submit", "commandId": "c", "runId": "r"}, False),
        ({"type": "run.submit", "commandId": "", "runId": "r", "name": "x"}, False),
        ({"type": "run.submit", "commandId": "c" * 201, "runId": "r", "name": "x"}, False),
        ({"type": "run.submit", "commandId": "c", "runId": "", "name": "x"}, False),
        ({"type": "run.fly", "commandId": "c", "runId": "r"}, False),
        (
            {"type": "events.append", "commandId": "c", "runId": "r", "event": {"type": "log", "line": "x"}},
            True,
        ),
        ({"type": "events.append", "commandId": "c", "runId": "r", "event": {"type": "terminal"}}, False),
    ],
    ids=str,
)
def test_commands_are_told_from_what_is_none(command: dict[str, Any], right: bool) -> None:
    validator = Draft202012Validator(SCHEMAS["topic.run-commands.json"])
    assert validator.is_valid(command) is right
    if right:
        Draft202012Validator(SCHEMAS[f"command.{command['type']}.json"]).validate(command)


def test_an_end_has_all_its_fields() -> None:
    fields = SCHEMAS["topic.run-terminals.json"]["required"]
    end: dict[str, Any] = dict.fromkeys(fields)
    end |= {"runId": "r", "seq": 2, "status": "failed", "completedAt": 1, "commandId": "c"}
    validator = Draft202012Validator(SCHEMAS["topic.run-terminals.json"])
    validator.validate(end)
    for name in fields:
        with pytest.raises(ValidationError):
            validator.validate({key: value for key, value in end.items() if key != name})
