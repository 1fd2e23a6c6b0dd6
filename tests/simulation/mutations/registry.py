"""Deliberate faults of the lane, to prove that the simulation finds them.

Each is a function that patches the real code; its docstring says what is wrong then. The places are those where such
a fault could be made by mistake. The other modules of this package have them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.simulation import mutations

Mutation = Callable[[pytest.MonkeyPatch], None]

_found: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    """Decorator: the function is one of the mutations."""
    _found[function.__name__] = function
    return function


def all_mutations() -> dict[str, Mutation]:
    """By name."""
    for module in pkgutil.iter_modules(mutations.__path__):
        importlib.import_module(f"{mutations.__name__}.{module.name}")
    return dict(sorted(_found.items()))


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Within it, the lane has this fault."""
    with pytest.MonkeyPatch.context() as patch:
        all_mutations()[name](patch)
        yield
