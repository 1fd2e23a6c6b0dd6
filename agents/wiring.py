"""Every agent of a worker, by name: one for each command topic that this version serves."""

from __future__ import annotations

from agents.rate import agent as rate_agent
from agents.run import agent as run_agent
from streams.worker_app import WorkerApp


def declare_all(worker: WorkerApp) -> None:
    """Declare all agents."""
    run_agent.declare(worker)
    rate_agent.declare(worker)
