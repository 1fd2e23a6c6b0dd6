"""What is hidden of decrypted sessions, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from streams.execution.known_secrets import HIDDEN, KnownSecrets

URL = "postgres://app:p%40ss-w0rd@db:5432/main"


@pytest.mark.parametrize(
    ("session", "secrets"),
    [
        ({"url": URL, "schema": "public"}, [URL, "p%40ss-w0rd", "p@ss-w0rd"]),
        ({"user": "app", "password": "hunter2"}, ["hunter2"]),
        ({"nested": [{"apiKey": "abcd"}, {"token": "efgh"}]}, ["abcd", "efgh"]),
        ("a bare text", ["a bare text"]),
        (["sk_live_1234"], ["sk_live_1234"]),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(session: Any, secrets: list[str]) -> None:
    known = KnownSecrets()
    known.learn(session)
    for secret in secrets:
        told = {secret: [f"cannot reach {secret}!", {"a": secret}, 1, None], "n": True}
        assert known.hide(told) == {
            HIDDEN: [f"cannot reach {HIDDEN}!", {"a": HIDDEN}, 1, None],
            "n": True,
        }
        assert secret not in repr(known)


def test_what_is_no_secret_stays() -> None:
    known = KnownSecrets()
    plain = {"user": "app", "schema": "public", "port": 5432, "pwd": "abc"}
    assert known.hide(plain) is plain
    known.learn(plain)
    known.learn({"password": "s3cret"})
    assert known.hide("app: public schema, abc") == "app: public schema, abc"


def test_a_secret_within_another_one_leaves_nothing_of_either() -> None:
    known = KnownSecrets()
    known.learn({"password": "pass"})
    known.learn({"url": URL.replace("p%40ss-w0rd", "pass-word")})
    assert known.hide("x postgres://app:pass-word@db:5432/main y") == f"x {HIDDEN} y"
