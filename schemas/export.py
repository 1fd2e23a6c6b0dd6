"""JSON Schema of everything on the wire and in the changelog, for clients in other languages.

`exported()` makes it from the models; the files in `schemas/exported` are its output, written by
`runlane schemas export`. This module reads no files but the sources of the models, and writes none.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter

from schemas import stored_calls, stored_launch, stored_rates  # noqa: F401 - their records are exported, too.
from schemas.call_results import CallOutcome
from schemas.child_results import ChildState
from schemas.commands import CommandSet
from schemas.dispatches import Dispatch
from schemas.envelope import MAX_COMMAND_ID_CHARACTERS, MAX_KEY_BYTES
from schemas.events import RunEvent
from schemas.launch_results import RetryParams
from schemas.rate_commands import RATE_COMMANDS
from schemas.rate_results import RATE_RESULTS
from schemas.replies import Reply
from schemas.run_commands import RUN_COMMANDS
from schemas.run_results import RUN_RESULTS
from schemas.stored import Stored
from schemas.terminals import TerminalState
from schemas.topics import TOPICS
from schemas.trace_results import Trace

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def exported() -> dict[str, bytes]:
    """File name -> content of every exported schema.

    `topic.<topic>.json` describes the values of a topic, `command.<type>.json` one command,
    `result.<type>.json` what a reply to it holds. Topics whose values are any bytes, or belong to a later
    version, have none.
    """
    files: dict[str, Schema] = {}
    for spec in TOPICS.values():
        if all(name in _VALUES for name in spec.values):
            schema = _any_of([_VALUES[name]() for name in spec.values])
            files[f"topic.{spec.name}.json"] = {
                **schema,
                "title": " | ".join(spec.values),
                "description": spec.purpose,
            }
    for commands in _COMMAND_SETS:
        for command, model in commands.by_type.items():
            files[f"command.{command}.json"] = _command(commands, model)
    results = RUN_RESULTS | RATE_RESULTS
    files |= {f"result.{command}.json": _of_model(model) for command, model in results.items()}
    return {name: _file(files[name]) for name in sorted(files)}


def _any_of(schemas: list[Schema]) -> Schema:
    if len(schemas) == 1:
        return schemas[0]
    merged: Schema = {"anyOf": [], "$defs": {}}
    for schema in schemas:
        merged["$defs"] |= schema.pop("$defs", {})
        merged["anyOf"] += schema.pop("anyOf", None) or [schema]
    merged["$defs"] = dict(sorted(merged["$defs"].items()))
    return merged


def _file(schema: Schema) -> bytes:
    ordered = {"$schema": _DIALECT, **{name: schema[name] for name in _by_reading_order(schema)}}
    return (json.dumps(ordered, indent=2, ensure_ascii=False) + "\n").encode()


def _by_reading_order(schema: Schema) -> list[str]:
    first = [name for name in ("title", "description") if name in schema]
    last = [name for name in ("$defs",) if name in schema]
    return [*first, *(name for name in schema if name not in {*first, *last}), *last]


def _of_model(model: Any) -> Schema:
    schema: Schema = TypeAdapter(model).json_schema()
    classes = [model] if isinstance(model, type) else []
    _describe(schema, [*classes, *_models_named(schema.get("$defs", ()))])
    return schema


def _any_command(commands: CommandSet) -> Schema:
    schema: Schema = commands.adapter.json_schema()
    _describe(schema, _models_named(schema["$defs"]))
    for model in commands.models:
        _limit_envelope(schema["$defs"][model.__name__], commands)
    return schema


def _command(commands: CommandSet, model: type[BaseModel]) -> Schema:
    schema = _of_model(model)
    _limit_envelope(schema, commands)
    return schema


def _limit_envelope(schema: Schema, commands: CommandSet) -> None:
    """What is checked of every command before its model looks at it (spec wire 1)."""
    fields = schema["properties"]
    fields["commandId"] |= {
        "description": "Names the intent: the same id again gets the first answer and changes nothing.",
        "minLength": 1,
        "maxLength": MAX_COMMAND_ID_CHARACTERS,
    }
    fields[commands.id_field] |= {
        "description": f"Equal to the record's key, 1..{MAX_KEY_BYTES} bytes of UTF-8.",
        "minLength": 1,
        "maxLength": MAX_KEY_BYTES,
    }


def _of_records() -> Schema:
    records = sorted(_subclasses(Stored), key=lambda record: record.__name__)
    references, definitions = msgspec.json.schema_components(records, ref_template="#/$defs/{name}")
    for record in records:
        _document(definitions[record.__name__], record, lambda name: name)
    return {"anyOf": list(references), "$defs": definitions}


def _subclasses(base: type[Stored]) -> Iterable[type[Stored]]:
    return [record for record in base.__subclasses__() if record.__module__.startswith("schemas.")]


def _models_named(names: Iterable[str]) -> list[type[BaseModel]]:
    """The models among all that are loaded whose schemas have these names."""
    found: list[type[BaseModel]] = []
    open_classes: list[type[BaseModel]] = [BaseModel]
    wanted = set(names)
    while open_classes:
        for model in open_classes.pop().__subclasses__():
            open_classes.append(model)
            if model.__name__ in wanted and model.__module__.startswith("schemas."):
                found.append(model)
    return found


def _describe(schema: Schema, models: Iterable[type[BaseModel]]) -> None:
    """Write the documentation of the models' fields into their schemas; drop generated titles."""
    definitions = schema.get("$defs", {})
    for model in models:
        target = definitions.get(model.__name__, schema)

        def wire_name(name: str, model: type[BaseModel] = model) -> str:
            field = model.model_fields.get(name)
            return (field.alias if field else None) or name

        _document(target, model, wire_name)
    for target in (schema, *definitions.values()):
        for field in target.get("properties", {}).values():
            field.pop("title", None)


def _document(schema: Schema, owner: type, wire_name: Callable[[str], str]) -> None:
    for name, text in _field_docs(owner).items():
        field = schema["properties"].get(wire_name(name))
        if field is not None:
            field.setdefault("description", text)


def _field_docs(owner: type) -> dict[str, str]:
    """The strings below the fields of a class and its bases, in one line each."""
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if not base.__module__.startswith("schemas."):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                docs[field.target.id] = " ".join(text.value.value.split())
    return docs


_COMMAND_SETS = (RUN_COMMANDS, RATE_COMMANDS)
_VALUES: dict[str, Callable[[], Schema]] = {
    "AnyRunCommand": lambda: _any_command(RUN_COMMANDS),
    "AnyRateCommand": lambda: _any_command(RATE_COMMANDS),
    "RunEvent": lambda: _of_model(RunEvent),
    "TerminalState": lambda: _of_model(TerminalState),
    "Dispatch": lambda: _of_model(Dispatch),
    "Reply": lambda: _of_model(Reply),
    "Stored": _of_records,
    "ChildState": lambda: _of_model(ChildState),
    "CallOutcome": lambda: _of_model(CallOutcome),
    "RetryParams": lambda: _of_model(RetryParams),
    "Trace": lambda: _of_model(Trace),
}
"""The schemas of the values that topics name."""
