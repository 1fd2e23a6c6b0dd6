"""Apache Kafka's jars: resolved and downloaded once, then kept in a folder of their own."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from filelock import FileLock
from tenacity import retry, retry_if_not_exception_type, stop_after_attempt, wait_fixed

from streams.user_errors import UserError

KAFKA_VERSION = "4.1.1"
"""Not newer: 4.3.1 loses transaction markers when it crashes."""

# kafka-clients is named since some dependency managements pick an older one; Kafka 4 logs by slf4j 1.7.
_ENDPOINT = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
    f"+org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
    "+org.slf4j:slf4j-simple:1.7.36"
)

Progress = Callable[[str], None]


def kafka_jars(folder: Path, progress: Progress) -> Path:
    """The folder with all jars of the broker, below `folder`; downloads them (54 MB) when they are not there.

    Safe to call from several processes at once. Raises `UserError` when they cannot be resolved.
    """
    target = folder / f"kafka-{KAFKA_VERSION}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "jars.lock"):
        if not target.is_dir():
            _make(target, folder / ".resolving", progress)
    return target


def _make(target: Path, scratch: Path, progress: Progress) -> None:
    try:
        import_module("jgo")
    except ImportError:
        raise UserError(
            "The local broker needs jgo, which is not installed.",
            "`pip install 'runlane[broker]'`, or set RUNLANE_BROKERS to a broker of your own",
        ) from None
    progress(f"downloading Apache Kafka {KAFKA_VERSION} (54 MB, only this once)")
    try:
        jars = _resolve(scratch, progress)
        staged = scratch / "staged"
        staged.mkdir()
        for jar in jars:
            shutil.copyfile(jar, staged / jar.name)
        os.replace(staged, target)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"Apache Kafka {KAFKA_VERSION} could not be downloaded: {_first_line(error)}",
            "check the network and the Maven repository settings of this machine, or set RUNLANE_BROKERS to "
            "a broker of your own",
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@retry(
    stop=stop_after_attempt(3), wait=wait_fixed(2), retry=retry_if_not_exception_type(UserError), reraise=True
)
def _resolve(scratch: Path, progress: Progress) -> list[Path]:
    from jgo import build
    from jgo.config import GlobalSettings
    from jgo.maven import PythonResolver

    from streams.broker.maven import configured_repositories

    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    environment = build(
        _ENDPOINT,
        cache_dir=scratch / "jgo",
        repositories=configured_repositories(),
        resolver=PythonResolver(progress_callback=_DownloadProgress(progress)),
    )
    # jgo sorts some jars into a module folder, which its class path leaves out.
    jars = sorted(Path(environment.path).rglob("*.jar"))
    broken = [jar.name for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        # A download that was cut short stays in Maven's cache under its final name.
        for name in broken:
            for cached in Path(GlobalSettings.load().repo_cache).rglob(name):
                cached.unlink()
        raise OSError(f"incomplete: {', '.join(broken)}")
    names = {jar.name for jar in jars}
    for needed in (f"kafka_2.13-{KAFKA_VERSION}.jar", f"kafka-clients-{KAFKA_VERSION}.jar"):
        if needed not in names:
            raise UserError(
                f"Resolving Apache Kafka {KAFKA_VERSION} did not give {needed}.",
                "a dependency management of this machine's Maven settings overrides its version",
            )
    return jars


class _DownloadProgress:
    """Tells every 10 MB how much has come, over all files."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bytes = 0
        self._told = 0

    @contextmanager
    def __call__(self, filename: str, total: int) -> Iterator[Callable[[int], None]]:
        yield self._add

    def _add(self, count: int) -> None:
        self._bytes += count
        if self._bytes - self._told >= 10_000_000:
            self._told = self._bytes
            self._progress(f"downloaded {self._bytes // 1_000_000} MB")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
