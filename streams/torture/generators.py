"""The generators of a torture's load: one for each family of commands that takes part."""

from __future__ import annotations

from streams.torture.awaited_load import AwaitedLoad
from streams.torture.call_load import CallLoad
from streams.torture.load import LoadGenerator
from streams.torture.rate_load import RateLoad
from streams.torture.retry_load import RetryLoad
from streams.torture.run_load import RunLoad

GENERATORS: tuple[type[LoadGenerator], ...] = (RunLoad, CallLoad, AwaitedLoad, RetryLoad, RateLoad)
"""A family joins by its generator being here."""
