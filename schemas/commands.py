"""What all commands share, and what a command topic accepts (spec wire 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from schemas.errors import ErrorCode


class Command(BaseModel):
    """One command: `type`, `commandId`, the entity's id and the command's own fields beside them, flat."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True)

    is_question: ClassVar[bool] = False
    """A question changes nothing; it is neither remembered nor answered from memory."""
    field_codes: ClassVar[dict[str, ErrorCode]] = {}
    """The code for a wrong field, by its wire name, where it is not `INVALID_COMMAND`."""

    type: str
    command_id: str


class FieldError(Exception):
    """A known command with missing or wrong fields. `message` names the field and quotes no value."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class CommandSet:
    """The commands of one topic."""

    topic: str
    """The topic's name without prefix, such as `run-commands`."""
    id_field: str
    """The field that repeats the record's key, such as `runId`."""
    models: tuple[type[Command], ...]
    adapter: TypeAdapter[Any]
    """Describes the union of `models`, discriminated by `type`."""

    @cached_property
    def by_type(self) -> dict[str, type[Command]]:
        """The model of each `type`."""
        return {model.model_fields["type"].annotation.__args__[0]: model for model in self.models}  # type: ignore[union-attr]

    def parse(self, body: dict[str, Any]) -> Command:
        """The command that a decoded value stands for; its `type` is in `by_type`. Raises `FieldError`."""
        try:
            return self._validate[body["type"]](body)
        except ValidationError as error:
            raise _field_error(self.by_type[body["type"]], body, error) from None

    @cached_property
    def _validate(self) -> dict[str, Callable[[Any], Command]]:
        # Straight to the model of the type: the union would look for it again.
        return {type_: TypeAdapter(model).validator.validate_python for type_, model in self.by_type.items()}


def _field_error(model: type[Command], body: dict[str, Any], error: ValidationError) -> FieldError:
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    name = path[0] if path else ""
    code = model.field_codes.get(name, ErrorCode.INVALID_COMMAND)
    if first["type"] in ErrorCode.__members__:
        code = ErrorCode(first["type"])  # The field's own validator has named it.
    kind = body[name].get("type") if isinstance(body.get(name), dict) else None
    if code is ErrorCode.INVALID_RUN_EVENT and kind == "terminal":
        return FieldError(code, "event.type: a run is ended with terminal.set, not with a terminal event")
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "union_tag_invalid":
        # The library's own text quotes the value.
        path.append("type")
        text = f"Input should be one of {first['ctx']['expected_tags']}"
    elif first["type"] == "union_tag_not_found":
        path.append("type")
        text = "Field required"
    elif first["type"] == "model_type":
        # The library's own text names a class.
        text = "Input should be an object"
    elif len(path) > 1 and path[1] == kind:
        # Where a value may be of several types, the library puts the type's name between the fields' names.
        del path[1]
    where = ".".join(path)
    return FieldError(code, f"{where}: {text}" if where else text)
