"""A server that speaks S3, as a process on a port of its own."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import wait_until
from tests.worker_process import free_port


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """The address of a server that has an empty bucket."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _answers(address), "the S3 server answers")
        request = urllib.request.Request(f"{address}/{bucket}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/moto-api/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
