"""The generators of a torture's load: one for each family of commands that takes part."""

from __future__ import annotations

from streams.torture.load import LoadGenerator
from streams.torture.run_load import RunLoad

GENERATORS: tuple[type[LoadGenerator], ...] = (RunLoad,)
"""A family joins by its generator being here."""
