"""Large launch parameters in a local folder and in a real S3-speaking server: put, read back, and what is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.json_codec import encode
from streams.launching.object_store import ObjectStore, ObjectStoreError
from streams.launching.params_spill import (
    MAX_PARAMS_BYTES,
    ParamsRefError,
    ParamsTooLargeError,
    read_params,
    require_size,
    write_params,
)
from streams.settings import Settings
from tests.integration.s3_server import s3_server

PARAMS = {"rows": ["é" * 1000] * 40}
BUCKET = "plays-test"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server(BUCKET) as address:
        yield address


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Each kind of store; they have to behave alike."""
    if request.param == "file":
        return ObjectStore(f"file://{tmp_path}/objects")
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-s3-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return ObjectStore(f"s3://{BUCKET}/below")


async def test_parameters_come_back_as_they_were_put(store: ObjectStore) -> None:
    data = encode(PARAMS)
    ref = (await write_params(store, "play/x/run/1", data)).model_dump(by_alias=True)
    assert set(ref) == {"storageKind", "storageKey", "bytes", "hash", "expiresAt"}
    assert ref["storageKind"] == store.kind
    assert ref["storageKey"].startswith("plays/workflow-retry-params/play-x-run-1/")
    assert ref["bytes"] == len(data)
    assert await read_params(store, ref) == PARAMS
    assert (await write_params(store, "play/x/run/1", data)).storage_key == ref["storageKey"]


async def put_ref(store: ObjectStore) -> dict[str, Any]:
    return (await write_params(store, "r", encode(PARAMS))).model_dump(by_alias=True)


async def test_each_failure_of_the_check_has_its_own_message(store: ObjectStore) -> None:
    ref = await put_ref(store)
    other_kind = "file" if store.kind == "s3" else "s3"
    wrong = [
        (
            {**ref, "storageKey": "other/" + ref["storageKey"]},
            "does not begin with plays/workflow-retry-params/",
        ),
        ({**ref, "storageKey": "plays/workflow-retry-params/../x"}, "or leaves it"),
        ({**ref, "bytes": ref["bytes"] + 1}, f"have {ref['bytes']} bytes; {ref['bytes'] + 1} were put"),
        ({**ref, "hash": "0" * 64}, "another hash"),
        ({**ref, "storageKey": ref["storageKey"] + ".gone"}, "are missing"),
        ({**ref, "storageKind": other_kind}, f"of the kind {other_kind}, not {store.kind}"),
        ({**ref, "bytes": "5"}, "no reference to parameters: bytes"),
        ("text", "no reference to parameters"),
        (None, "no reference to parameters"),
    ]
    messages = set()
    for given, message in wrong:
        with pytest.raises(ParamsRefError, match=message) as raised:
            await read_params(store, given)
        messages.add(raised.value.message)
    assert len(messages) == 7


async def test_other_content_under_the_key_is_found(store: ObjectStore) -> None:
    ref = await put_ref(store)
    await store.put(ref["storageKey"], b"x" * ref["bytes"])
    with pytest.raises(ParamsRefError, match="another hash"):
        await read_params(store, ref)
    await store.put(ref["storageKey"], b"x")
    with pytest.raises(ParamsRefError, match="have 1 bytes"):
        await read_params(store, ref)


def test_over_8_mib_is_refused_with_the_advice_to_stage_files() -> None:
    require_size(MAX_PARAMS_BYTES)
    with pytest.raises(ParamsTooLargeError, match="staged files"):
        require_size(MAX_PARAMS_BYTES + 1)


async def test_a_bucket_that_is_not_there_is_said_without_credentials(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-s3-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(ObjectStoreError, match="could not be stored") as raised:
        await ObjectStore("s3://no-such-bucket").put("plays/workflow-retry-params/a", b"x")
    assert "planted-s3-secret" not in str(raised.value)


def test_the_setting_takes_folders_and_buckets_and_no_credentials() -> None:
    for right in ("file:///var/lib/runlane", "s3://bucket", "s3://bucket/prefix"):
        assert Settings(object_store=right).object_store == right
    for wrong in ("/var/lib", "https://bucket", "s3://key:secret@bucket"):
        with pytest.raises(ValueError):
            Settings(object_store=wrong)
    with pytest.raises(ObjectStoreError, match="there is no object store"):
        ObjectStore.of(Settings())
