"""Which Maven repositories this machine is configured to use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from jgo.config import GlobalSettings

CENTRAL = "central"
"""The id of the repository that every Maven client uses by default."""


def configured_repositories(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Repositories to resolve from in place of, or beside, the default one: id -> URL.

    jgo reads neither Maven's `settings.xml` (mirrors) nor, from Python, the `[repositories]` of its own
    configuration file; behind a company's mirror one of them is what makes a download work.
    """
    repositories: dict[str, str] = {}
    if mirror := _mirror_of_central(environment):
        repositories[CENTRAL] = mirror
    repositories.update(GlobalSettings.load().repositories)
    return repositories


def _mirror_of_central(environment: Mapping[str, str]) -> str | None:
    files = [Path.home() / ".m2" / "settings.xml"]
    homes = [environment[name] for name in ("MAVEN_HOME", "M2_HOME") if name in environment]
    files += [Path(home) / "conf" / "settings.xml" for home in homes]
    for file in files:
        if not file.is_file():
            continue
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            continue
        for mirror in root.iterfind("{*}mirrors/{*}mirror"):
            url = mirror.findtext("{*}url", "").strip()
            if url and _covers_central(mirror.findtext("{*}mirrorOf", "")):
                return _interpolate(url, environment).rstrip("/")
    return None


def _interpolate(text: str, environment: Mapping[str, str]) -> str:
    """`${env.NAME}` replaced, as Maven does in its settings."""
    return re.sub(r"\$\{env\.(\w+)\}", lambda found: environment.get(found.group(1), ""), text)


def _covers_central(mirror_of: str) -> bool:
    patterns = {pattern.strip() for pattern in mirror_of.split(",")}
    return f"!{CENTRAL}" not in patterns and bool(patterns & {"*", "external:*", CENTRAL})
