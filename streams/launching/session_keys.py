"""Encrypting and decrypting database sessions, with keys that can be changed (spec coordinator 5, wire 8).

    ring = KeyRing.parse("2025-01:<key in base64>,2025-07:<key in base64>")
    session = ring.encrypt("run-1", "main", {"url": "postgres://..."})
    await client.put_sessions("run-1", [session])
    ...
    sessions = await client.get_sessions("run-1")
    url = ring.decrypt("run-1", sessions[0])["url"]

The last key encrypts, any decrypts. To change keys, give the new one to all who decrypt; then to those who encrypt,
as the last; and drop the old one when no session is left that needs it (30 minutes).
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.encrypted_sessions import NONCE_BYTES, EncryptedSession, associated_data, open_session
from schemas.json_codec import decode, encode
from streams.user_errors import UserError

KEY_BYTES = 32


class SessionKeyError(UserError):
    """A session cannot be encrypted or decrypted with these keys. The text shows neither keys nor sessions."""


class KeyRing:
    """Keys of 32 bytes by their ids, the newest last."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Raises `SessionKeyError` for no keys, or keys of another length."""
        if not keys:
            raise SessionKeyError("a key ring needs a key", "make one with KeyRing.generate_key()")
        for key_id, key in keys.items():
            if len(key) != KEY_BYTES:
                raise SessionKeyError(f"the key {key_id!r} has {len(key)} bytes; {KEY_BYTES} are needed")
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """The ring that `id:key,id:key` stands for, keys in base64. Raises `SessionKeyError`."""
        keys: dict[str, bytes] = {}
        for number, part in enumerate(text.split(","), 1):
            key_id, colon, key = part.strip().partition(":")
            try:
                keys[key_id] = b64decode(key, validate=True)
            except binascii.Error:
                colon = ""
            if not colon:
                raise SessionKeyError(f"key number {number} is not of the form id:key in base64")
        return cls(keys)

    @staticmethod
    def generate_key() -> bytes:
        """A new random key."""
        return AESGCM.generate_key(8 * KEY_BYTES)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys, the newest last."""
        return tuple(self._ciphers)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    def encrypt(self, run_id: str, name: str, session: Any) -> EncryptedSession:
        """A session (any JSON) for this run, under this name, with the newest key. Raises `SessionKeyError`."""
        key_id = self.key_ids[-1]
        bound_to, data = associated_data(run_id, name), encode(session)
        while True:
            nonce = os.urandom(NONCE_BYTES)
            ciphertext = self._ciphers[key_id].encrypt(nonce, data, bound_to)
            made = {
                "name": name,
                "algorithm": "A256GCM",
                "keyId": key_id,
                "nonce": b64encode(nonce).decode(),
                "ciphertext": b64encode(ciphertext).decode(),
            }
            problem = open_session([made])
            if problem is None:
                return EncryptedSession.model_validate(made)
            # A short ciphertext may be readable by chance; any other problem does not go away.
            if "readable text" not in problem:
                raise SessionKeyError(f"the session cannot be sent: {problem.removeprefix('number 1 ')}")

    def decrypt(self, run_id: str, session: EncryptedSession) -> Any:
        """What was encrypted for this run. Raises `SessionKeyError`: unknown key, or another run's session."""
        cipher = self._ciphers.get(session.key_id)
        if cipher is None:
            known = ", ".join(self._ciphers)
            raise SessionKeyError(
                f"the session {session.name!r} takes the key {session.key_id!r}; there are: {known}",
                "add that key to the ring, or have the session encrypted with a newer one",
            )
        try:
            nonce, ciphertext = (
                b64decode(text, validate=True) for text in (session.nonce, session.ciphertext)
            )
            return decode(cipher.decrypt(nonce, ciphertext, associated_data(run_id, session.name)))
        except (InvalidTag, ValueError):
            raise SessionKeyError(
                f"the session {session.name!r} cannot be decrypted for this run with the key {session.key_id!r}",
                "it was changed, or is another run's, or the key of this id is another one",
            ) from None
