"""Database sessions that look encrypted, for tests that need no key."""

from __future__ import annotations

from base64 import b64encode
from hashlib import blake2b
from typing import Any


def sealed(name: str = "main", salt: str = "") -> dict[str, Any]:
    """A session as clients send it; the same name and salt give the same."""
    nonce = blake2b(f"n {name} {salt}".encode(), digest_size=12).digest()
    # Begins with a byte that no UTF-8 has.
    ciphertext = b"\xff" + blake2b(f"c {name} {salt}".encode(), digest_size=47).digest()
    return {
        "name": name,
        "algorithm": "A256GCM",
        "keyId": "key-1",
        "nonce": b64encode(nonce).decode(),
        "ciphertext": b64encode(ciphertext).decode(),
    }
