"""Dispatches: the order to an executor to start a run, on the topic `run-dispatch` (DESIGN 2)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Dispatch(BaseModel):
    """One attempt to execute a run; it may be delivered twice; (runId, instanceId, attempt) names it.

    Exactly one of `params` and `params_ref` is meant: `paramsRef` is left out when the parameters are inline.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    run_id: str
    """The run's id, as the record's key."""
    instance_id: str
    """Made from the run id; what an executor sends back carries it."""
    attempt: int
    """1 for the first attempt; what an executor sends back carries it."""
    name: str
    """Name of the function that executors registered."""
    params: Any = None
    """What the run was submitted with."""
    params_ref: Any = None
    """What the run was submitted with, when it was too large to be sent."""
    pool: str | None = None
    """As submitted; left out when unset."""
    parent_run_id: str | None = None
    """As submitted; left out when unset."""
    base_url: str | None = None
    """Where the caller may be called back; left out when none was given, or none that is right."""
    dispatched_at: int
    """Milliseconds since the epoch."""
    command_id: str
    """Id of the command that made the dispatch."""
