"""Machines are pure: what they may import, and what importing them brings in (DESIGN 4 and 6)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OUTSIDE = {"agent.py", "export.py"}
"""The wiring to Faust and a command of its own; no machine may import them."""

MACHINES = [ROOT / "agents/machine.py", ROOT / "agents/tables.py", ROOT / "agents/families.py"]
MACHINES += sorted(path for path in (ROOT / "agents").glob("*/*.py") if path.name not in OUTSIDE)
SCHEMAS = sorted(path for path in (ROOT / "schemas").rglob("*.py") if path.name not in OUTSIDE)

NOT_PURE = {
    "asyncio",
    "concurrent",
    "datetime",
    "faust",
    "http",
    "io",
    "kafka",
    "locale",
    "logging",
    "multiprocessing",
    "os",
    "platform",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "ssl",
    "streams",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}
"""Clock, chance, environment, input and output, and what is above the machines."""

FOR_SCHEMAS = {"msgspec", "orjson", "pydantic", "pydantic_core", "yaml", "schemas"}

NOT_PURE_BUILTINS = {"open", "input", "print", "id", "hash", "exec", "eval", "__import__"}
"""`hash` of a string differs from process to process, `id` from run to run."""


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_machine_imports_the_standard_library_and_schemas_only(path: Path) -> None:
    for module in imported_modules(path):
        top = module.partition(".")[0]
        if top not in {"agents", "schemas"}:
            assert top in sys.stdlib_module_names, f"{module} is not in the standard library"
        assert top not in NOT_PURE, module


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: str(path.relative_to(ROOT)))
def test_schemas_import_nothing_that_acts(path: Path) -> None:
    for module in imported_modules(path):
        top = module.partition(".")[0]
        assert top in FOR_SCHEMAS or top in sys.stdlib_module_names, module
        assert top not in NOT_PURE, module


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_machine_calls_no_builtin_that_depends_on_the_process(path: Path) -> None:
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called.isdisjoint(NOT_PURE_BUILTINS)


def test_importing_the_machines_brings_in_neither_kafka_nor_faust_nor_a_store() -> None:
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MACHINES]
    program = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert {"agents.run.machine", "schemas.stored"} <= loaded
    assert loaded.isdisjoint({"agents.run.agent", "schemas.export"})
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(
        {"aiokafka", "confluent_kafka", "faust", "kafka", "mode", "prometheus_client", "rocksdict", "streams"}
    )


def imported_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield module
            if module in {"agents", "agents.run", "schemas"}:
                yield from (f"{module}.{alias.name}" for alias in node.names)
