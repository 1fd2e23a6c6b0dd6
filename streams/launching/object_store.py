"""The object store for what is too large for Kafka: a local folder, or a bucket that speaks S3."""

from __future__ import annotations

import os
from typing import Any, Literal, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from streams.settings import Settings
from streams.user_errors import UserError

StorageKind = Literal["file", "s3"]


class ObjectStoreError(UserError):
    """The object store could not do what it was asked."""


class ObjectStore:
    """Objects by key, whole; written and read through `obstore`."""

    def __init__(self, url: str) -> None:
        """`url` is `file:///folder` or `s3://bucket/prefix`; S3 is configured by the usual `AWS_...` variables.

        Raises `ObjectStoreError` for another URL, and for a folder that cannot be made.
        """
        parts = urlsplit(url)
        try:
            if parts.scheme == "file":
                self.kind: StorageKind = "file"
                self._store: Any = LocalStore(url2pathname(parts.path), mkdir=True)
                return
            if parts.scheme == "s3":
                self.kind = "s3"
                # A server on this machine has no certificate; whoever names a plain endpoint means it.
                plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
                self._store = S3Store.from_url(url, client_options={"allow_http": plain})
                return
        except (BaseError, OSError, ValueError) as error:
            raise ObjectStoreError(f"the object store cannot be used: {_reason(error)}") from None
        raise ObjectStoreError(
            "the object store is neither a folder nor a bucket",
            "set object_store to file:///folder or s3://bucket/prefix",
        )

    @classmethod
    def of(cls, settings: Settings) -> ObjectStore:
        """The store that the setting `object_store` names. Raises `ObjectStoreError` when it names none."""
        if settings.object_store is None:
            raise ObjectStoreError(
                "there is no object store for large parameters",
                "set object_store (RUNLANE_OBJECT_STORE) to file:///folder or s3://bucket/prefix",
            )
        return cls(settings.object_store)

    async def put(self, key: str, data: bytes) -> None:
        """Store an object. Raises `ObjectStoreError`."""
        try:
            await self._store.put_async(key, data)
        except (BaseError, OSError, ValueError) as error:
            raise ObjectStoreError(f"the object {key} could not be stored: {_reason(error)}") from None

    async def get(self, key: str) -> bytes | None:
        """An object; None when there is none. Raises `ObjectStoreError` when that cannot be told."""
        try:
            found = await self._store.get_async(key)
            return bytes(cast(Any, await found.bytes_async()))
        except FileNotFoundError:
            return None
        except (BaseError, OSError, ValueError) as error:
            raise ObjectStoreError(f"the object {key} could not be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """The error's first line: what follows are requests, and they may hold credentials."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
