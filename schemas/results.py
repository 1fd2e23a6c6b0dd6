"""What all results have: the `result` of a reply (spec wire 3)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Result(BaseModel):
    """Base of the results; unknown fields are ignored, so that a newer coordinator can say more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)
