"""The Docker stack, read as files: images, users, health, settings and commands; no engine is needed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.broker.jars import KAFKA_VERSION
from streams.broker.server_config import NodeIdentity, write_properties
from streams.settings import Settings
from tests.worker_process import RUNLANE

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "infra/Dockerfile").read_text()
STACK: dict[str, Any] = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "kafka"}
LASTING = {name: service for name, service in SERVICES.items() if name != "topics"}
WORKERS = {
    name: service for name, service in SERVICES.items() if service.get("command", [])[-1:] == ["worker"]
}

# What belongs to one place only: addresses, folders, and how the controller is found.
OF_ITS_PLACE = re.compile(r"listener|log\.dirs|controller\.quorum")

each_service = pytest.mark.parametrize("name", SERVICES)


def _instructions(word: str) -> list[str]:
    """The arguments of every Dockerfile instruction of this name, continuation lines joined."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()[1:]) for line in lines if line.split()[:1] == [word]]


def _seconds(duration: str) -> float:
    units = {"s": 1, "m": 60}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+)([sm])", duration))


def test_the_services_are_kafka_topics_two_workers_and_an_executor() -> None:
    assert set(SERVICES) == {"kafka", "topics", "worker-1", "worker-2", "executor"}
    assert set(WORKERS) == {"worker-1", "worker-2"}


def test_images_are_pinned_to_exact_versions() -> None:
    images = [service["image"] for service in SERVICES.values()]
    images += [line.split()[0] for line in _instructions("FROM")]
    for image in images:
        assert re.search(r":v?\d+\.\d+\.\d+(-[\w.-]+)?$", image), image
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_one_service_builds_the_image_of_all() -> None:
    assert {service["image"] for service in OURS.values()} == {SERVICES["topics"]["image"]}
    assert [name for name, service in SERVICES.items() if "build" in service] == ["topics"]
    build = SERVICES["topics"]["build"]
    assert (ROOT / "infra" / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


@each_service
def test_what_lasts_is_restarted_and_checked_and_what_ends_is_not(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("unless-stopped" if name in LASTING else "no")
    if name in LASTING:
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        assert _seconds(service["healthcheck"]["interval"]) >= _seconds(service["healthcheck"]["timeout"])
    else:
        assert service["healthcheck"] == {"disable": True}


@each_service
def test_memory_and_logs_are_bounded_and_no_rights_can_be_gained(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    assert "user" not in service, "the user is the image's, which is not root"


def test_our_containers_cannot_write_their_code_and_have_no_capabilities() -> None:
    for service in OURS.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_a_service_starts_when_what_it_needs_is_there() -> None:
    assert SERVICES["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    for name in (*WORKERS, "executor"):
        needed = SERVICES[name]["depends_on"]
        assert needed["kafka"]["condition"] == "service_healthy", name
        assert needed["topics"]["condition"] == "service_completed_successfully", name


def test_ports_are_open_to_this_machine_only_and_are_distinct() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_no_two_services_share_a_volume_and_workers_keep_their_state_in_theirs() -> None:
    mounted = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", [])]
    volumes = [volume for volume, _ in mounted]
    assert sorted(volumes) == sorted(STACK["volumes"])
    data_dir = re.search(r"RUNLANE_DATA_DIR=(\S+)", DOCKERFILE)
    assert data_dir is not None
    for service in WORKERS.values():
        assert [volume.split(":")[1] for volume in service["volumes"]] == [data_dir[1]]
    folders = re.findall(r"install --directory --owner runlane .* (/\S+)", DOCKERFILE)
    assert folders == [data_dir[1]], "a new volume takes over the owner of the image's folder"


def test_containers_get_the_time_that_a_handover_may_take() -> None:
    deadline = Settings.model_fields["shutdown_deadline_s"].default
    for name in (*WORKERS, "executor"):
        assert _seconds(SERVICES[name]["stop_grace_period"]) > deadline, name


@each_service
def test_environment_names_are_settings(name: str) -> None:
    known = {f"RUNLANE_{setting.upper()}" for setting in Settings.model_fields}
    given = {
        variable for variable in SERVICES[name].get("environment", {}) if variable.startswith("RUNLANE_")
    }
    assert given <= known
    assert bool(given) is (name != "kafka")


def test_environment_names_of_the_image_are_settings() -> None:
    given = {variable.lower() for variable in re.findall(r"RUNLANE_(\w+)=", DOCKERFILE)}
    assert given
    assert given <= Settings.model_fields.keys()


def test_all_of_ours_find_the_broker_under_one_prefix() -> None:
    settings = [service["environment"] for service in OURS.values()]
    assert all(other == settings[0] for other in settings)
    advertised = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{settings[0]['RUNLANE_BROKERS']}" in advertised.split(",")


def test_broker_settings_agree_with_the_local_brokers(tmp_path: Path) -> None:
    lines = write_properties(tmp_path, NodeIdentity(1, 2, "id")).read_text().splitlines()
    local = dict(line.split("=", 1) for line in lines)
    stack = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in SERVICES["kafka"]["environment"].items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    }
    important = {name: value for name, value in local.items() if not OF_ITS_PLACE.search(name)}
    assert {name: value for name, value in stack.items() if not OF_ITS_PLACE.search(name)} == important
    assert local["transaction.max.timeout.ms"] == "60000"


@pytest.mark.parametrize("name", OURS)
def test_commands_are_ones_that_the_command_line_knows(name: str) -> None:
    program, *arguments = OURS[name]["command"]
    assert program == "runlane"
    known = subprocess.run([str(RUNLANE), *arguments, "--help"], capture_output=True, text=True, check=False)
    assert known.returncode == 0, known.stderr
    words = [argument for argument in arguments if ":" not in argument]
    assert f"Usage: runlane {' '.join(words)} " in known.stdout


def test_the_executors_module_is_in_the_image() -> None:
    module, app = SERVICES["executor"]["command"][-1].split(":")
    source = ROOT / f"{module.replace('.', '/')}.py"
    assert f"\n{app} = Executor(" in source.read_text()
    assert f"{module.split('.')[0]} {module.split('.')[0]}" in _instructions("COPY")


def test_the_image_runs_a_worker_and_not_as_root() -> None:
    assert _instructions("USER")[-1] == "10001:10001"
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert last_stage.index("\nUSER ") < last_stage.index("\nHEALTHCHECK ") < last_stage.index("\nCMD ")
    assert _instructions("CMD") == ['["runlane", "worker"]']


def test_health_checks_are_ones_that_the_script_knows() -> None:
    script = ROOT / "infra/healthcheck.py"
    checks = [service["healthcheck"]["test"] for name, service in OURS.items() if name in LASTING]
    assert [check[:3] for check in checks] == [["CMD", "python", script.name]] * 3
    known = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert known.returncode != 0
    assert {check[3] for check in checks} == set(known.stderr.strip().split()[-1].split("|"))


def test_build_tools_stay_in_the_first_stage() -> None:
    first, last = DOCKERFILE.split("\nFROM ")[-2:]
    assert "gcc" in first
    assert not re.search(r"gcc|apt-get|pip install", last)
    assert "pip uninstall --yes" in last


def test_the_build_context_has_what_is_copied_and_nothing_else() -> None:
    entries = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {entry[1:] for entry in entries if entry.startswith("!")}
    copied = {
        source
        for arguments in _instructions("COPY")
        if not arguments.startswith("--from=")
        for source in shlex.split(arguments)[:-1]
    }
    assert "*" in entries
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
