"""Encrypting and decrypting database sessions: what comes out, and what nobody can do without the right key."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encrypted_sessions import EncryptedSession, open_session
from streams.launching.session_keys import KeyRing, SessionKeyError
from tests.property.json_values import VALUES

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SECRET = "postgres://app:hunter2-s3cr3t@db/main"

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


def sent(session: EncryptedSession) -> dict[str, Any]:
    return session.model_dump(by_alias=True)


@given(st.text(min_size=1, max_size=20), names, VALUES)
def test_what_was_encrypted_for_a_run_comes_back(run_id: str, name: str, session: Any) -> None:
    ring = KeyRing({"old": OLD, "new": NEW})
    encrypted = ring.encrypt(run_id, name, session)
    assert encrypted.key_id == "new"
    assert open_session([sent(encrypted)]) is None
    assert repr(ring.decrypt(run_id, encrypted)) == repr(session)


@given(st.text(), st.text(), names, names)
def test_it_is_bound_to_its_run_and_its_name(run: str, other: str, name: str, other_name: str) -> None:
    ring = KeyRing({"k": OLD})
    encrypted = ring.encrypt(run, name, SECRET)
    renamed = encrypted.model_copy(update={"name": other_name})
    for run_id, session in ((other, encrypted), (run, renamed), (other, renamed)):
        if (run_id, session.name) == (run, name):
            continue
        with pytest.raises(SessionKeyError, match="cannot be decrypted"):
            ring.decrypt(run_id, session)


@given(st.integers(0, 10_000), st.sampled_from(["nonce", "ciphertext"]))
def test_a_changed_bit_is_found(bit: int, field: str) -> None:
    ring = KeyRing({"k": OLD})
    encrypted = ring.encrypt("r", "main", SECRET)
    data = bytearray(b64decode(getattr(encrypted, field)))
    bit %= 8 * len(data)
    data[bit // 8] ^= 1 << bit % 8
    changed = encrypted.model_copy(update={field: b64encode(bytes(data)).decode()})
    with pytest.raises(SessionKeyError, match="cannot be decrypted"):
        ring.decrypt("r", changed)


def test_keys_can_be_changed() -> None:
    before, both, after = KeyRing({"1": OLD}), KeyRing({"1": OLD, "2": NEW}), KeyRing({"2": NEW})
    of_before, of_both = before.encrypt("r", "a", 1), both.encrypt("r", "a", 2)
    assert (of_before.key_id, of_both.key_id) == ("1", "2")
    assert (both.decrypt("r", of_before), both.decrypt("r", of_both), after.decrypt("r", of_both)) == (
        1,
        2,
        2,
    )
    with pytest.raises(SessionKeyError, match="takes the key '1'; there are: 2"):
        after.decrypt("r", of_before)
    with pytest.raises(SessionKeyError, match="cannot be decrypted"):
        KeyRing({"1": NEW}).decrypt("r", of_before)


def test_each_encryption_has_a_nonce_of_its_own() -> None:
    ring = KeyRing({"k": OLD})
    assert len({ring.encrypt("r", "main", SECRET).nonce for _ in range(1000)}) == 1000


def test_a_short_session_is_never_refused_for_looking_like_text() -> None:
    ring = KeyRing({"k": OLD})
    for _ in range(20_000):
        assert open_session([sent(ring.encrypt("r", "main", 1))]) is None


@pytest.mark.parametrize("name", ["", "a b", SECRET, "x" * 65])
def test_a_name_that_cannot_be_sent_is_refused(name: str) -> None:
    with pytest.raises(SessionKeyError, match="`name`") as raised:
        KeyRing({"k": OLD}).encrypt("r", name, 1)
    assert "s3cr3t" not in str(raised.value)


def test_a_ring_is_read_from_text() -> None:
    text = f"1:{b64encode(OLD).decode()}, 2:{b64encode(NEW).decode()}"
    ring = KeyRing.parse(text)
    assert ring.key_ids == ("1", "2")
    assert KeyRing({"2": NEW}).decrypt("r", ring.encrypt("r", "a", 5)) == 5
    assert len(KeyRing.generate_key()) == 32
    for wrong in ("", "1", "1:", "1:###", f"1:{b64encode(OLD[:16]).decode()}"):
        with pytest.raises(SessionKeyError):
            KeyRing.parse(wrong)


def test_nothing_shows_a_key_or_a_session() -> None:
    text = b64encode(OLD).decode()
    ring = KeyRing.parse(f"k:{text}")
    encrypted = ring.encrypt("r", "main", SECRET)
    with pytest.raises(SessionKeyError) as unknown:
        KeyRing({"other": NEW}).decrypt("r", encrypted)
    with pytest.raises(SessionKeyError) as wrong:
        KeyRing.parse(f"k:{text[:-8]}")
    shown = repr(ring) + repr(encrypted) + str(unknown.value) + str(wrong.value)
    assert text not in shown
    assert text[:-8] not in shown
    assert "s3cr3t" not in shown
