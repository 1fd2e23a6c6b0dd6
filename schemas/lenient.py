"""Field types that never refuse: a value of the wrong type takes the default (spec wire 1, "Fields")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class OrDefault:
    """Annotation: what does not validate becomes `default`, without a Python call per value."""

    default: Any = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=self.default, on_error="default")


Text = Annotated[str | None, OrDefault()]
"""A string, else null."""

Number = Annotated[int | float | None, OrDefault()]
"""A JSON number as it was sent (booleans are not numbers), else null."""

Items = Annotated[list[Any] | None, OrDefault()]
"""A list of anything, else null."""

Flag = Annotated[bool, OrDefault(False)]
"""A boolean, else false."""


def clamped(low: int, high: int, default: int) -> Any:
    """The annotation of a whole number limited to `low..high`; missing or not a number: `default`."""

    def clamp(value: int | float | None) -> int:
        return default if value is None else int(min(max(value, low), high))

    return Annotated[int | float | None, OrDefault(), AfterValidator(clamp)]
