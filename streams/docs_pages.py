"""The reference pages of `docs/reference`: made from the same descriptions that the code works with.

`pages()` makes them and writes nothing; `runlane docs export` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from agents.families import FAMILIES
from schemas.errors import ERRORS
from schemas.export import exported
from schemas.topics import TOPICS, TopicSpec
from streams.settings import Settings
from streams.verify.families import RULES

_SCHEMAS = "../../schemas/exported"
_NOTE = (
    "*Written by `runlane docs export docs/reference`. Change the descriptions in the code, not this page.*"
)

_COLUMNS = ("field", "value", "meaning")
_SERVED = {family.commands.topic for family in FAMILIES}

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """File name -> Markdown of every reference page."""
    return {
        "commands.md": _commands(),
        "errors.md": _errors(),
        "settings.md": _settings(),
        "topics.md": _topics(),
        "verification.md": _verification(),
    }


def _errors() -> str:
    rows = [
        (f"`{code}`", info.meaning, info.advice, " and ".join(_PLACES[place] for place in info.shows_in))
        for code, info in ERRORS.items()
    ]
    return _page(
        "Error codes",
        "A code is stable: programs may decide by it. The message beside it is for people and may change. "
        "A refusal changes nothing but the remembered answer.",
        _table(("code", "meaning", "what to do", "shows in"), rows),
    )


_PLACES = {"reply": "the reply", "dead-letter": "a dead letter", "client": "the client"}


def _settings() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        if field.default_factory is not None:
            default = "depends on the machine"
        else:
            default = {None: "unset", "": "empty"}.get(field.default) or f"`{_plain(field.default)}`"
        rows.append((f"`RUNLANE_{name.upper()}`", default, field.description or ""))
    return _page(
        "Settings",
        "A setting comes from a flag of the command (`--prefix`), else from the environment, else from the "
        "settings file, else it has its default. The file is `runlane.toml` in the working directory, or "
        "the one that `RUNLANE_CONFIG` or `--config` names; names in it are in lower case and without "
        '`RUNLANE_`, such as `prefix = "shop"`. `runlane settings` prints the values in force and where '
        "each comes from.",
        _table(("variable", "default", "meaning"), rows),
    )


def _verification() -> str:
    rows = [(f"`{rule.name}`", rule.about, rule.not_checkable or "always checkable") for rule in RULES]
    return _page(
        "Verification",
        "`runlane verify` reads the topics of a deployment, running or stopped, as any client could, and holds "
        "them against these rules. What it reports has a place: topic, partition and offset of a record to look "
        "at. What nobody can tell any more, because retention has removed records or answers are remembered no "
        "longer, is counted as not checkable, and is no violation.",
        _table(("rule", "what has to hold", "not checkable"), rows),
    )


def _topics() -> str:
    return _page(
        "Topics",
        "Names stand here without the prefix: with the prefix `shop`, `run-events` is `shop-run-events`. "
        "`runlane topics apply` makes all of them, with the settings below and `min.insync.replicas` 2 when "
        "there are three replicas or more, else 1. Consumers of the outputs have to read `read_committed`. "
        "All times are in ms since the epoch.",
        *(part for spec in TOPICS.values() for part in _one_topic(spec)),
    )


def _one_topic(spec: TopicSpec) -> Iterator[str]:
    name = f"topic.{spec.name}.json"
    values = ", ".join(f"`{value}`" if value.isidentifier() else value for value in spec.values)
    if name in _schemas():
        values += f" ([JSON Schema]({_SCHEMAS}/{name}))"
    if spec.name in _SERVED:
        values += f", see [the commands](commands.md#commands-of-{spec.name})"
    elif spec.family == "commands":
        values += "; a later version serves them"
    facts = [
        ("key", spec.key + (f"; equals the value's `{spec.id_field}`" if spec.id_field else "")),
        ("values", values),
        ("from", ", ".join(spec.producers)),
        ("to", ", ".join(spec.consumers)),
        ("partitions", str(spec.partitions or "as the setting `partitions`")),
        ("settings", ", ".join(f"`{key}={value}`" for key, value in spec.settings.items())),
    ]
    yield f"## {spec.name}"
    yield spec.purpose
    yield _table(("", ""), facts)
    if spec.family in ("outputs", "replies") and name in _schemas():
        schema = _schema(name)
        records = [schema] if "properties" in schema else [*schema["$defs"].values()]
        for record in records:
            if record is not schema:
                yield f"`{record['title']}`: {record['description']}"
            yield _table(_COLUMNS, _fields(record, as_written=True))


def _commands() -> str:
    parts = []
    for family in FAMILIES:
        commands = family.commands
        key = TOPICS[commands.topic].key
        parts += [
            f"## Commands of {commands.topic}",
            f"The record's key is the {key}. Every command has, beside its own fields:",
            _table(
                _COLUMNS,
                [
                    ("`type`", "string", "Which command it is."),
                    *_fields(_command(commands.models[0]), only={"commandId", commands.id_field}),
                ],
            ),
        ]
        common = {"type", "commandId", commands.id_field}
        for command, model in commands.by_type.items():
            parts += _one_command(command, model.is_question, _command(model), common)
    return _page(
        "Commands",
        "A command is one JSON object. A field of the wrong type counts as left out where the field has a "
        "default; else the command is refused. Unknown fields are ignored. A *question* changes nothing, "
        "and its command id is not remembered.",
        *parts,
    )


def _one_command(command: str, is_question: bool, schema: Schema, common: set[str]) -> list[str]:
    about = schema["description"] + (" *A question.*" if is_question else "")
    parts = [f"### {command}", about]
    if own := _fields(schema, leave_out=common):
        parts.append(_table(_COLUMNS, own))
    else:
        parts.append("No fields of its own.")
    for name, definition in schema.get("$defs", {}).items():
        if "type" in definition["properties"]:
            parts += [f"`{name}`: {definition['description']}"]
            parts.append(_table(_COLUMNS, _fields(definition)))
    result = _schema(f"result.{command}.json")
    parts += ["The reply's `result`:", _table(_COLUMNS, _fields(result, as_written=True))]
    for name, definition in result.get("$defs", {}).items():
        if not any(spec.values == (name,) for spec in TOPICS.values()):
            parts += [f"`{name}`: {definition['description']}"]
            parts.append(_table(_COLUMNS, _fields(definition, as_written=True)))
    links = [f"[{kind}]({_SCHEMAS}/{kind}.{command}.json)" for kind in ("command", "result")]
    return [*parts, f"JSON Schema: {', '.join(links)}."]


def _fields(
    schema: Schema,
    *,
    only: set[str] | None = None,
    leave_out: Iterable[str] = (),
    as_written: bool = False,
) -> list[tuple[str, str, str]]:
    """Rows of name, value and meaning. `as_written`: of what runlane writes; else of what it takes."""
    rows = []
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if name in leave_out or (only is not None and name not in only):
            continue
        value = _value(field)
        default = field.get("default")
        if as_written:
            value += " or null" if {"type": "null"} in field.get("anyOf", ()) else ""
        elif name not in required:
            value += ", optional" if default is None else f", default `{_plain(default)}`"
        rows.append((f"`{name}`", value, field.get("description", "")))
    return rows


def _value(field: Schema) -> str:
    """What a field may hold, in words."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "$ref" in field:
        return _reference(field["$ref"].rpartition("/")[2])
    kinds = field.get("anyOf") or field.get("oneOf")
    if kinds is None:
        return _WORDS[field["type"]] if "type" in field else "any JSON"
    words = [_value(kind) for kind in kinds if kind != {"type": "null"}]
    if "number" in words and "whole number" in words:
        words.remove("whole number")
    return " or ".join(dict.fromkeys(words))


def _reference(name: str) -> str:
    for spec in TOPICS.values():
        if spec.values == (name,):
            return f"[`{name}`](topics.md#{spec.name})"
    return f"`{name}`"


_WORDS = {
    "string": "string",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
}


def _command(model: Any) -> Schema:
    return _schema(f"command.{model.model_fields['type'].annotation.__args__[0]}.json")


def _schema(name: str) -> Schema:
    schema: Schema = json.loads(_schemas()[name])
    return schema


@cache
def _schemas() -> dict[str, bytes]:
    return exported()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _page(title: str, introduction: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _NOTE, introduction, *parts]) + "\n"
