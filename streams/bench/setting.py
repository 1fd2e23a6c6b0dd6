"""Where figures come from: the machine and the versions of everything that takes part."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from streams.bench.report import Conditions
from streams.broker.jars import KAFKA_VERSION
from streams.cli.output import size

_DISTRIBUTIONS = (
    "runlane",
    "faust-streaming",
    "aiokafka",
    "confluent-kafka",
    "rocksdict",
    "orjson",
    "pydantic",
)
_ADDITIONS = 500_000
_TRIES = 3


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": size(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
    }


def conditions() -> Conditions:
    """How busy the machine is: the load average, and how fast Python runs just now.

    A shared processor can be several times slower at one moment than at another without showing it in any
    load; figures are only comparable where this speed was the same.
    """
    return {"load average": round(os.getloadavg()[0], 2), "million additions/s": round(_speed(), 1)}


def versions(*, own_broker: bool) -> dict[str, str]:
    """Versions by name; that of given brokers is not known."""
    found = {"python": platform.python_version()}
    found |= {name: version(name) for name in _DISTRIBUTIONS}
    found["librdkafka"] = confluent_kafka.libversion()[0]
    found["kafka broker"] = f"{KAFKA_VERSION}, started for this" if own_broker else "as given"
    return found


def _speed() -> float:
    best = 0.0
    for _ in range(_TRIES):
        started, total = time.thread_time(), 0
        for value in range(_ADDITIONS):
            total += value
        best = max(best, _ADDITIONS / 1e6 / max(time.thread_time() - started, 1e-9))
    return best


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
