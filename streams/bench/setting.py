"""Where figures come from: the machine and the versions of everything that takes part."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

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


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, and how busy the machine is now."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": size(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
        "load before": round(os.getloadavg()[0], 2),
    }


def versions(*, own_broker: bool) -> dict[str, str]:
    """Versions by name; that of given brokers is not known."""
    found = {"python": platform.python_version()}
    found |= {name: version(name) for name in _DISTRIBUTIONS}
    found["librdkafka"] = confluent_kafka.libversion()[0]
    found["kafka broker"] = f"{KAFKA_VERSION}, started for this" if own_broker else "as given"
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
