"""Valid commands of every family, made from the command models alone: a family that is added is fuzzed as it is.

A command's JSON Schema says what its fields look like. Of each command there is one with its required fields
only, for each kind that a required field may have, and one with everything that it accepts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from agents.families import FAMILIES, Family
from schemas.commands import Command, CommandSet, FieldError

Body = dict[str, Any]
Schema = Mapping[str, Any]

MAX_COMBINATIONS = 12
"""Of kinds of required fields, for each command."""

_ANY_JSON = {"text": "é", "list": [1, 2.5, None, True], "inner": {"": []}}


@dataclass(frozen=True)
class ValidCommand:
    """A command that its model accepts, for any key and any command id."""

    family: Family
    fields: Body
    """With `type`, without the entity's id and `commandId`."""

    @property
    def topic(self) -> str:
        """The command topic, without prefix."""
        return self.family.commands.topic

    def body(self, key: str, command_id: str) -> Body:
        """The whole command."""
        return {**self.fields, "commandId": command_id, self.family.commands.id_field: key}


def valid_commands() -> list[ValidCommand]:
    """At least one of each command of each family."""
    return [
        ValidCommand(family, fields)
        for family in FAMILIES
        for model in family.commands.models
        for fields in _bodies(family.commands, model)
    ]


def _bodies(commands: CommandSet, model: type[Command]) -> list[Body]:
    schema = TypeAdapter(model).json_schema()
    envelope = {"commandId": "c", commands.id_field: "k"}
    optional = [name for name in schema["properties"] if name not in schema["required"]]
    kinds = {name: list(_examples(field, schema)) for name, field in schema["properties"].items()}
    found: list[Body] = []
    for alternative in schema.get("anyOf", [{"required": []}]):
        names = [*schema["required"], *alternative["required"]]
        required = [name for name in names if name not in envelope]
        combinations = itertools.product(*(kinds[name] for name in required))
        for values in itertools.islice(combinations, MAX_COMBINATIONS):
            fields = dict(zip(required, values, strict=True))
            _require_accepted(commands, {**fields, **envelope})
            found.append(fields)
    # In both orders, since of two fields that exclude each other only the first one gets in.
    for names in (optional, optional[::-1]):
        complete = found[0]
        for name in names:
            with_it = {**complete, name: kinds[name][0]}
            if _is_accepted(commands, {**with_it, **envelope}):
                complete = with_it
        found.append(complete)
    return [fields for at, fields in enumerate(found) if fields not in found[:at]]


def _examples(schema: Schema, root: Schema) -> Iterator[Any]:
    """Values that a schema allows, one for each kind; the fullest first."""
    if "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from _examples(found, root)
    elif "const" in schema:
        yield schema["const"]
    elif "enum" in schema:
        yield from schema["enum"]
    elif alternatives := schema.get("oneOf") or schema.get("anyOf"):
        for alternative in alternatives:
            if alternative.get("type") != "null":
                yield from _examples(alternative, root)
    elif schema.get("type") == "object" and "properties" in schema:
        names = schema["properties"]
        kinds = [list(_examples(inner, root)) for inner in names.values()]
        for values in itertools.zip_longest(*kinds):
            chosen = [
                of_kind[0] if value is None else value for of_kind, value in zip(kinds, values, strict=True)
            ]
            yield dict(zip(names, chosen, strict=True))
    elif schema.get("type") == "array":
        items = list(itertools.islice(_examples(schema.get("items", {}), root), 2))
        yield items * max(1, schema.get("minItems", 1))
    else:
        yield _scalar(schema)


def _scalar(schema: Schema) -> Any:
    kind = schema.get("type")
    if kind == "string":
        return "text".ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    if kind in ("integer", "number"):
        # 1 is the first attempt of a run, and the first fencing number of a call.
        return min(max(1, schema.get("minimum", 1)), schema.get("maximum", 1))
    if kind == "boolean":
        return True
    return _ANY_JSON


def _is_accepted(commands: CommandSet, body: Body) -> bool:
    try:
        commands.parse(body)
    except FieldError:
        return False
    return True


def _require_accepted(commands: CommandSet, body: Body) -> None:
    try:
        commands.parse(body)
    except FieldError as error:
        raise AssertionError(f"the schema of {body['type']} allows {body}, the model refuses it") from error
