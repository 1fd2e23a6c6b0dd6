"""Which executor instance runs a run: `instance.put`, `instance.get` (spec coordinator 5, wire 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.run.known import make_known
from agents.run.refusals import attempt_superseded, run_ended
from agents.run.tables import HEADS, INSTANCES, UNKNOWN_RUN
from schemas.launch_commands import InstanceGet, InstancePut
from schemas.stored import replace
from schemas.stored_launch import StoredInstance

EXPIRE_INSTANCE = "instance"
"""The timer that removes an expired record."""


def put_instance(request: Request[InstancePut], view: View) -> Decision:
    """`instance.put`: record the instance; one of a later attempt is the one that may write from now on."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    attempt = command.attempt
    if attempt is not None and attempt < head.attempt:
        return attempt_superseded(head)
    decision = Decision()
    instance = StoredInstance(
        instance_id=command.instance_id,
        attempt=attempt,
        ttl_ms=command.ttl_ms,
        expires_at=request.now + command.ttl_ms,
    )
    decision.put(INSTANCES, (run_id,), instance)
    decision.schedule(EXPIRE_INSTANCE, instance.expires_at)
    if attempt is None:
        make_known(decision, run_id, head)
    else:
        now_writing = replace(head, status="running", attempt=attempt, instance_id=command.instance_id)
        decision.put(HEADS, (run_id,), now_writing)
    return decision.succeed({"instance": _result(instance)})


def get_instance(request: Request[InstanceGet], view: View) -> Decision:
    """`instance.get`: the record, or null."""
    instance = view.get(INSTANCES, request.key)
    found = instance is not None and instance.expires_at > request.now
    return Decision().succeed({"instance": _result(instance) if instance is not None and found else None})


def expire(timer: FiredTimer, view: View) -> Decision:
    """Remove an expired record."""
    decision = Decision()
    instance = view.get(INSTANCES, timer.key)
    if instance is not None and instance.expires_at <= timer.now:
        decision.delete(INSTANCES, (timer.key,))
    return decision


def evict_instance(decision: Decision, run_id: str) -> None:
    """Remove the record of a run that is evicted."""
    decision.delete(INSTANCES, (run_id,))
    decision.cancel(EXPIRE_INSTANCE)


def _result(instance: StoredInstance) -> dict[str, Any]:
    return {"instanceId": instance.instance_id, "attempt": instance.attempt, "ttlMs": instance.ttl_ms}
