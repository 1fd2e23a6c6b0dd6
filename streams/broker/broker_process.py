"""The broker's process: started detached, found again by its process file, ended by its id."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil

from streams.broker.java import Java
from streams.broker.server_config import write_atomically
from streams.user_errors import UserError

_LOG_KEPT_BYTES = 20_000_000
_CLOCK_SLACK_S = 2.0
_STOP_PATIENCE_S = 30.0

_JVM_FLAGS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)
_LOGGING_FLAGS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    # Every client's and the server's full settings, on each connection.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
)

# Kept so that the interpreter reaps a broker that this process started and that died.
_started: list[subprocess.Popen[bytes]] = []


def process_file(folder: Path) -> Path:
    """Where the id and start time of the running broker's process are kept."""
    return folder / "process.json"


def log_file(folder: Path) -> Path:
    """Where the broker writes its log."""
    return folder / "broker.log"


def format_storage(java: Java, jars: Path, properties: Path, cluster_id: str) -> None:
    """Prepare an empty data folder for KRaft; repeating it does no harm."""
    command = _command(java, jars, "kafka.tools.StorageTool")
    command += ["format", "--standalone", "--ignore-formatted", "-t", cluster_id, "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
        raise UserError(f"The local broker's data folder could not be prepared:\n{tail}")


def start(java: Java, jars: Path, properties: Path) -> psutil.Process:
    """Start the broker of `properties` in a session of its own, so that it outlives the caller."""
    folder = properties.parent
    log = log_file(folder)
    if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*_command(java, jars, "kafka.Kafka", *_LOGGING_FLAGS), str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    _started.append(child)
    process = psutil.Process(child.pid)
    write_atomically(
        process_file(folder), json.dumps({"pid": process.pid, "createTime": process.create_time()})
    )
    return process


def find(folder: Path) -> psutil.Process | None:
    """The running broker of `folder`; None when it does not run, or when its id now names another process."""
    try:
        noted = json.loads(process_file(folder).read_text())
        process = psutil.Process(int(noted["pid"]))
        ours = (
            abs(process.create_time() - float(noted["createTime"])) < _CLOCK_SLACK_S
            and process.status() != psutil.STATUS_ZOMBIE
            and str(folder / "server.properties") in process.cmdline()
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        return None
    except psutil.AccessDenied:
        return None
    return process if ours else None


def is_alive(process: psutil.Process) -> bool:
    """Whether the process still runs (one that ended and was not waited for does not)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def stop(process: psutil.Process) -> None:
    """End the process: SIGTERM, and SIGKILL when it has not ended in 30 s."""
    try:
        process.terminate()
        try:
            process.wait(_STOP_PATIENCE_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_STOP_PATIENCE_S)
    except psutil.NoSuchProcess:
        return


def kill(process: psutil.Process) -> None:
    """End the process by SIGKILL, as a crash would, and wait until it is gone."""
    try:
        process.kill()
        process.wait(_STOP_PATIENCE_S)
    except psutil.NoSuchProcess:
        return


def _command(java: Java, jars: Path, main_class: str, *flags: str) -> list[str]:
    return [str(java.executable), *_JVM_FLAGS, *flags, "-cp", str(jars / "*"), main_class]
