"""The commands of `rate-commands` as methods with typed answers (spec coordinator 7, wire 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from schemas.rate_results import (
    AcquireResult,
    PeekResult,
    PenalizeResult,
    ReleaseResult,
    RenewResult,
    RulesGetResult,
    RulesPutResult,
    SettleResult,
)
from schemas.rate_rules import RateRule
from streams.command_methods import CallOptions, CommandMethods

Rules = Sequence[RateRule] | None


class RateCalls(CommandMethods):
    """Commands about rate buckets. `RateLimiter` has all of this as `async with limiter.permit()`.

    `rules` None: those that are stored for the bucket.
    """

    async def acquire_permits(
        self,
        bucket_id: str,
        rules: Rules = None,
        *,
        requested: int = 1,
        minimum: int | None = None,
        run_id: str | None = None,
        timeout_ms: int = 0,
        lease_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> AcquireResult:
        """Permits, at most `requested`, and none when fewer than `minimum` (default 1) are free.

        With `timeout_ms` (at most 300,000) it waits for them. There is a lease, of `lease_ms` (1,000 to 3,600,000,
        default 300,000), when a rule has `max_concurrency`: release it when the call is over.
        """
        fields = _wish(rules, requested, minimum, run_id, timeout_ms, lease_ms)
        return await self._ask(AcquireResult, "rate.acquire", bucket_id, fields, timeout_ms, options)

    async def lease_permits(
        self,
        bucket_id: str,
        rules: Rules = None,
        *,
        requested: int,
        minimum: int | None = None,
        run_id: str | None = None,
        timeout_ms: int = 0,
        lease_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> AcquireResult:
        """A block of permits that may be used for `valid_ms` from the moment at which this is called.

        It lasts `lease_ms` (1,000 to 3,600,000, default 10,000). Settle it: of a block that runs out, all counts as
        used.
        """
        fields = _wish(rules, requested, minimum, run_id, timeout_ms, lease_ms)
        return await self._ask(AcquireResult, "rate.lease", bucket_id, fields, timeout_ms, options)

    async def renew_lease(
        self,
        bucket_id: str,
        lease_id: str,
        fencing_number: int,
        *,
        lease_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> RenewResult:
        """Let a lease last `lease_ms` (1,000 to 3,600,000, default 300,000) from now on; its id stays the same.

        `renewed` is False when it had ended before.
        """
        fields = {"leaseId": lease_id, "fencingNumber": fencing_number, "leaseMs": lease_ms}
        return await self._call(RenewResult, "rate.renew", bucket_id, fields, options)

    async def release_lease(
        self, bucket_id: str, lease_id: str, fencing_number: int, **options: Unpack[CallOptions]
    ) -> ReleaseResult:
        """End a lease whose permits were used."""
        fields = {"leaseId": lease_id, "fencingNumber": fencing_number}
        return await self._call(ReleaseResult, "rate.release", bucket_id, fields, options)

    async def settle_permits(
        self,
        bucket_id: str,
        used: int,
        *,
        lease_id: str | None = None,
        acquire_command_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> SettleResult:
        """Say how many permits of a lease, or of an acquire without one, were used; a lease ends with it.

        Refused (`RATE_GRANT_NOT_FOUND`) when it has ended.
        """
        fields = {"used": used, "leaseId": lease_id, "acquireCommandId": acquire_command_id}
        return await self._call(SettleResult, "rate.settle", bucket_id, fields, options)

    async def penalize(
        self, bucket_id: str, cooldown_ms: int, **options: Unpack[CallOptions]
    ) -> PenalizeResult:
        """Let nobody have permits for a while, as the provider asked."""
        return await self._call(
            PenalizeResult, "rate.penalize", bucket_id, {"cooldownMs": cooldown_ms}, options
        )

    async def peek_permits(
        self,
        bucket_id: str,
        rules: Rules = None,
        *,
        requested: int = 1,
        minimum: int | None = None,
        **options: Unpack[CallOptions],
    ) -> PeekResult:
        """What an acquire would get now, and how the bucket stands."""
        fields = {"rules": sent_rules(rules), "requested": requested, "minimum": minimum}
        return await self._call(PeekResult, "rate.peek", bucket_id, fields, options)

    async def put_rate_rules(
        self,
        bucket_id: str,
        rules: Sequence[RateRule],
        *,
        expected_version: int | None = None,
        **options: Unpack[CallOptions],
    ) -> RulesPutResult:
        """Store a bucket's rules; an empty list removes them.

        Refused (`RATE_RULES_CHANGED`) when the stored ones do not have the `expected_version`.
        """
        fields = {"rules": sent_rules(rules), "expectedVersion": expected_version}
        return await self._call(RulesPutResult, "rate.rules.put", bucket_id, fields, options)

    async def get_rate_rules(self, bucket_id: str, **options: Unpack[CallOptions]) -> RulesGetResult:
        """The rules that are stored for a bucket."""
        return await self._call(RulesGetResult, "rate.rules.get", bucket_id, {}, options)


def sent_rules(rules: Rules) -> list[dict[str, Any]] | None:
    """Rules as they are sent."""
    return None if rules is None else [rule.model_dump(by_alias=True) for rule in rules]


def _wish(
    rules: Rules,
    requested: int,
    minimum: int | None,
    run_id: str | None,
    timeout_ms: int,
    lease_ms: int | None,
) -> dict[str, Any]:
    return {
        "rules": sent_rules(rules),
        "requested": requested,
        "minimum": minimum,
        "runId": run_id,
        "timeoutMs": timeout_ms or None,
        "leaseMs": lease_ms,
    }
