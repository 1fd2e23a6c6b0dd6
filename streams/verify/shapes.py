"""Fast readers of JSON records, made from the pydantic models that describe them: types are checked, nothing is lost.

Reading a log event takes 0.8 us this way instead of 3.7, and a verification reads millions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Union, get_args

import msgspec
from pydantic import BaseModel

InvalidRecordError = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the readers raise for bytes that are not what the model describes."""


def reader_of(model: type[BaseModel]) -> Callable[[bytes], Any]:
    """The function that reads JSON of a model; the result has the model's attributes."""
    return msgspec.json.Decoder(_struct(model)).decode


def reader_of_kinds(models: Iterable[type[BaseModel]]) -> tuple[Callable[[bytes], Any], dict[type, str]]:
    """As `reader_of`, for several models told apart by their field `type`; also the `type` of each result's class."""
    structs = {_struct(model, tag): tag for model in models for tag in [_type_of(model)]}
    any_of: Any = Union.__getitem__(tuple(structs))
    return msgspec.json.Decoder(any_of).decode, structs


def reader_of_fields(name: str, **fields: tuple[str, Any]) -> Callable[[bytes], Any]:
    """The function that reads some fields of a JSON object: attribute -> (wire name, type); others are passed over."""
    struct = msgspec.defstruct(
        name,
        [(attribute, type_) for attribute, (_, type_) in fields.items()],
        rename={attribute: wire_name for attribute, (wire_name, _) in fields.items()},
        gc=False,
    )
    return msgspec.json.Decoder(struct).decode


def _struct(model: type[BaseModel], tag: str | None = None) -> type[msgspec.Struct]:
    fields: list[Any] = []
    rename = {}
    for name, field in model.model_fields.items():
        if tag is not None and name == "type":
            continue
        rename[name] = field.alias or name
        fields.append(
            (name, field.annotation) if field.is_required() else (name, field.annotation, field.default)
        )
    return msgspec.defstruct(
        model.__name__,
        fields,
        rename=rename,
        tag_field="type" if tag is not None else None,
        tag=tag,
        kw_only=True,
        gc=False,
    )


def _type_of(model: type[BaseModel]) -> str:
    return str(get_args(model.model_fields["type"].annotation)[0])
