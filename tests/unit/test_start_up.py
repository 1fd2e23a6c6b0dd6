"""What starts fast: commands and clients import nothing that only a worker needs, and that takes a second."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["streams.cli.main", "streams.client", "streams.executor"])
def test_only_a_worker_imports_faust(module: str) -> None:
    program = f"import sys, {module}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "confluent_kafka" in loaded
    assert loaded.isdisjoint({"aiokafka", "faust", "mode", "rocksdict"})
