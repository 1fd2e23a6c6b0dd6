"""The commands of call de-duplication as methods with typed answers (spec coordinator 4, wire 7)."""

from __future__ import annotations

from typing import Any, Unpack

from schemas.call_commands import OnFailure
from schemas.call_results import AwaitResult, CallsResult, ClaimResult, PublishResult, RenewResult
from streams.command_methods import CallOptions, CommandMethods


class DeduplicatedCalls(CommandMethods):
    """Commands by which a call, named by its tool and the hash of its input, is executed once within a run.

    Executors have all of this as `context.call`.
    """

    async def claim_call(
        self,
        run_id: str,
        tool_id: str,
        input_hash: str,
        owner: str,
        *,
        lease_ms: int | None = None,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> ClaimResult:
        """A call's result (`hit`), the lease to execute it (`claimed`), or who has it (`pending`).

        Who is answered `claimed` executes the call and publishes its result with the fencing number; the lease
        lasts `lease_ms` (1,000 to 3,600,000, default 300,000) and may be renewed.
        """
        fields = {
            **_name(tool_id, input_hash),
            "owner": owner,
            "leaseMs": lease_ms,
            "instanceId": instance_id,
            "attempt": attempt,
        }
        return await self._call(ClaimResult, "call.claim", run_id, fields, options)

    async def renew_call(
        self,
        run_id: str,
        tool_id: str,
        input_hash: str,
        fencing_number: int,
        *,
        lease_ms: int | None = None,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> RenewResult:
        """Keep a lease for `lease_ms` from now on. Refused (`CALL_FENCED`) when another number holds by now."""
        fields = {
            **_name(tool_id, input_hash),
            "fencingNumber": fencing_number,
            "leaseMs": lease_ms,
            "instanceId": instance_id,
            "attempt": attempt,
        }
        return await self._call(RenewResult, "call.renew", run_id, fields, options)

    async def publish_call(
        self,
        run_id: str,
        tool_id: str,
        input_hash: str,
        fencing_number: int,
        value: Any = None,
        *,
        error: Any = None,
        on_failure: OnFailure | None = None,
        **options: Unpack[CallOptions],
    ) -> PublishResult:
        """Publish a call's `value`, or the `error` with which it failed, and answer all who wait.

        `on_failure` is for errors: `keep` (default) makes the error the call's result, `release` lets others claim
        the call again. Refused (`CALL_FENCED`) when another number holds, or another result was published.
        """
        # Null is a value, so this field is sent whatever it holds.
        told = {"value": value} if error is None else {"error": error, "onFailure": on_failure or "keep"}
        fields = {**_name(tool_id, input_hash), "fencingNumber": fencing_number, **told}
        result = await self._sender.call("call.publish", run_id, fields, **options)
        return PublishResult.model_validate(result)

    async def await_call(
        self,
        run_id: str,
        tool_id: str,
        input_hash: str,
        *,
        timeout_ms: int = 30_000,
        claim_for: str | None = None,
        lease_ms: int | None = None,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> AwaitResult:
        """A call's result (`hit`); waits for it up to `timeout_ms` (at most 30,000), then `timeout`.

        `claim_for`: the owner who would also take the lease (`claimed`), at once when nobody has it, or when it
        runs out or is released meanwhile; the longest waiting one gets it.
        """
        fields = {
            **_name(tool_id, input_hash),
            "timeoutMs": timeout_ms,
            "claim": True if claim_for is not None else None,
            "owner": claim_for,
            "leaseMs": lease_ms,
            "instanceId": instance_id,
            "attempt": attempt,
        }
        return await self._ask(AwaitResult, "call.await", run_id, fields, timeout_ms, options)

    async def list_calls(self, run_id: str, **options: Unpack[CallOptions]) -> CallsResult:
        """A run's calls and how they stand, as many as fit into one answer (768 KiB)."""
        return await self._call(CallsResult, "call.debug", run_id, {}, options)


def _name(tool_id: str, input_hash: str) -> dict[str, Any]:
    return {"toolId": tool_id, "inputHash": input_hash}
