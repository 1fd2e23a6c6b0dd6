"""Large launch parameters: put into the object store by the client, and read back with checks (spec coordinator 5)."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from pydantic import ValidationError

from agents.run.instance_id import instance_id
from schemas.json_codec import InvalidJsonError, decode
from schemas.launch_commands import HOUR_MS
from schemas.params_refs import KEY_PREFIX, ParamsRef
from streams.launching.object_store import ObjectStore
from streams.user_errors import UserError

SPILLED_OVER_BYTES = 64 * 1024
MAX_PARAMS_BYTES = 8 * 1024 * 1024


class ParamsTooLargeError(UserError):
    """The parameters are too large even for the object store."""


class ParamsRefError(UserError):
    """A reference to parameters leads nowhere, or to others than those that were put."""


def require_size(size: int) -> None:
    """Raises `ParamsTooLargeError` for parameters of more than 8 MiB of JSON."""
    if size > MAX_PARAMS_BYTES:
        raise ParamsTooLargeError(
            f"the parameters have {size} bytes of JSON; at most {MAX_PARAMS_BYTES} are taken",
            "pass large inputs as staged files, and name the files in the parameters",
        )


async def write_params(store: ObjectStore, run_id: str, data: bytes) -> ParamsRef:
    """Put the JSON of a run's parameters into the store; returns the reference. Raises `ObjectStoreError`."""
    digest = hashlib.sha256(data).hexdigest()
    key = f"{KEY_PREFIX}{instance_id(run_id)}/{digest}.json"
    await store.put(key, data)
    return ParamsRef(
        storage_kind=store.kind,
        storage_key=key,
        bytes=len(data),
        hash=digest,
        expires_at=int(time.time() * 1000) + HOUR_MS,
    )


async def read_params(store: ObjectStore, ref: Any) -> Any:
    """The parameters that a reference stands for. Raises `ParamsRefError`, `ObjectStoreError`."""
    try:
        found = ParamsRef.model_validate(ref)
    except ValidationError as error:
        fields = ", ".join(sorted({str(item["loc"][0]) for item in error.errors() if item["loc"]}))
        raise ParamsRefError(f"this is no reference to parameters: {fields or 'it is no object'}") from None
    key = found.storage_key
    if not key.startswith(KEY_PREFIX) or ".." in key.split("/"):
        raise ParamsRefError(f"the key of the parameters does not begin with {KEY_PREFIX}, or leaves it")
    if found.storage_kind != store.kind:
        raise ParamsRefError(
            f"the parameters are in a store of the kind {found.storage_kind}, not {store.kind}",
            "set object_store to the store that the run was launched with",
        )
    data = await store.get(key)
    if data is None:
        raise ParamsRefError(
            f"the parameters are missing in the object store: {key}",
            "objects may be deleted an hour after the launch; launch the run anew under another id",
        )
    if len(data) != found.bytes:
        raise ParamsRefError(f"the parameters have {len(data)} bytes; {found.bytes} were put: {key}")
    if hashlib.sha256(data).hexdigest() != found.hash:
        raise ParamsRefError(f"the parameters have another hash than those that were put: {key}")
    try:
        return decode(data)
    except InvalidJsonError:
        raise ParamsRefError(f"the parameters are not JSON: {key}") from None
