"""References to launch parameters that are too large to be sent (spec coordinator 5)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

KEY_PREFIX = "plays/workflow-retry-params/"
"""Of the keys of all such objects; a bucket's rule that deletes old ones goes by it."""


class ParamsRef(BaseModel):
    """Where parameters are, and how to tell that they are the right ones."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True
    )

    storage_kind: Literal["file", "s3"]
    """What kind of object store has them."""
    storage_key: str
    """The object's key; begins with `plays/workflow-retry-params/`."""
    bytes: int
    """Of the parameters' JSON."""
    hash: str
    """SHA-256 of that JSON, in hex."""
    expires_at: int
    """In ms since the epoch; the object may be deleted from then on."""
