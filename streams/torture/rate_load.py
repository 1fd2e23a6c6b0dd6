"""The load of rate buckets: permits at once, late or in blocks, and given back, settled, or held until they expire."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from schemas.topics import RATE_COMMANDS, REPLIES
from streams.torture.command_load import RepeatingLoad, first_of
from streams.torture.load import LoadCommand, Proof
from streams.verify.findings import Tally
from streams.verify.rate.permits import PERMITS, check_permits
from streams.verify.rate.rows import KINDS
from streams.verify.rate.uses import RuleUses, Use

_BUCKETS = 8
_WINDOW_MS = 2000
_MOST = 20
_MOST_AT_A_TIME = 6
_BLOCK_MS = 1500
_LEASE_MS = 2500
_WAIT_MS = 3000
_NEXT_STEPS = ("settle", "settle", "release", "die")


class RateLoad(RepeatingLoad):
    """Callers that take permits and use all, some or none of them; some are heard of no more."""

    name = "rates"
    share = 0.12
    topic = RATE_COMMANDS

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._buckets = [_Bucket(self.new_id("bucket"), number) for number in range(_BUCKETS)]
        self._asked: dict[str, _Asked] = {}
        self._grants: dict[tuple[str, int], _Grant] = {}
        """By command id and time of the grant."""
        self._wrong: list[str] = []

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """See `LoadGenerator`."""
        asked = self._asked.get(body.get("commandId") or "") if topic == REPLIES.name else None
        if asked is None:
            return
        if not body["ok"]:
            self._wrong.append(f"{body['commandId']} was refused: {body['error']}")
        elif body["result"]["granted"]:
            self._take(asked, body["commandId"], body["result"])

    def counts(self) -> dict[str, int]:
        """See `LoadGenerator`."""
        return {
            "permits granted": sum(grant.permits for grant in self._grants.values()),
            "of these in leases": sum(grant.permits for grant in self._grants.values() if grant.expires_at),
            "over-grants": len(self._over_grants()),
        }

    def problems(self) -> list[str]:
        """Refusals of what is right, and grants that the rules do not allow."""
        return first_of([*self._wrong, *self._over_grants()])

    def make(self) -> LoadCommand:
        """See `RepeatingLoad`."""
        source = self.source
        bucket = source.choice(self._buckets)
        if source.random() < 0.03:
            return self.command("rate.penalize", bucket.bucket_id, Proof.REPLY, cooldownMs=200)
        is_block = source.random() < 0.25
        fields: dict[str, Any] = {"rules": [bucket.rule], "requested": source.randrange(1, 6)}
        fields["leaseMs"] = _BLOCK_MS if is_block else _LEASE_MS
        waits = source.random() < 0.4
        if waits:
            fields |= {"timeoutMs": _WAIT_MS, "runId": f"run-{source.randrange(5)}"}
        type_ = "rate.lease" if is_block else "rate.acquire"
        made = self.command(type_, bucket.bucket_id, Proof.REPLY, waits=waits, **fields)
        self._asked[made.command_id or ""] = _Asked(bucket, is_block, source.choice(_NEXT_STEPS))
        return made

    def _take(self, asked: _Asked, command_id: str, result: dict[str, Any]) -> None:
        """Note a grant, and do with it what its caller does; the answer may come several times."""
        at, permits, expires_at = result["grantedAt"], result["granted"], result.get("expiresAt", 0)
        if (command_id, at) in self._grants:
            return
        settles = asked.then == "settle"
        used = permits // 2 if settles else permits
        self._grants[command_id, at] = _Grant(asked, at, permits, used, expires_at)
        key = asked.bucket.bucket_id
        lease: dict[str, Any] = {
            name: result[name] for name in ("leaseId", "fencingNumber") if name in result
        }
        if settles:
            which: dict[str, Any] = lease or {"acquireCommandId": command_id}
            self.due.append(self._end("rate.settle", key, f"{command_id}-settled", used=used, **which))
        elif asked.then == "release" and lease:
            self.due.append(self._end("rate.release", key, f"{command_id}-released", **lease))

    def _end(self, type_: str, key: str, command_id: str, **fields: Any) -> LoadCommand:
        return self.command(type_, key, Proof.REPLY, command_id=command_id, **fields)

    def _over_grants(self) -> list[str]:
        """What the answers alone tell of grants that are too many."""
        tally = Tally(shown_per_rule=len(self._grants))
        for bucket in self._buckets:
            grants = [grant for grant in self._grants.values() if grant.asked.bucket is bucket]
            uses = sorted(grant.use(number) for number, grant in enumerate(grants))
            # Where a fixed window begins is not known here: a span may touch two of them.
            kind = "bucket" if bucket.rule["kind"] == "bucket" else "sliding"
            if uses:
                check_permits(RuleUses(KINDS.index(kind), _WINDOW_MS, uses), (), 0, tally)
        return [f"over-grant: {violation.what}" for violation in tally.of(PERMITS).shown]


@dataclass(frozen=True)
class _Bucket:
    """A bucket and its one rule."""

    bucket_id: str
    number: int

    @property
    def rule(self) -> dict[str, Any]:
        """As it is sent."""
        bounded = self.number % 4 == 3
        rule = {
            "ruleId": "r",
            "kind": KINDS[self.number % 3],
            "windowMs": _WINDOW_MS,
            "requestsPerWindow": _MOST,
        }
        return rule | ({"maxConcurrency": _MOST_AT_A_TIME} if bounded else {})


@dataclass(frozen=True)
class _Asked:
    """A command that was made, to understand its answer."""

    bucket: _Bucket
    is_block: bool
    then: str
    """What its caller does with the permits."""


@dataclass(frozen=True)
class _Grant:
    """What a caller was told to have."""

    asked: _Asked
    granted_at: int
    permits: int
    used: int
    expires_at: int

    def use(self, number: int) -> Use:
        """What it counts at least. When a lease ended that was given back is not known here: it may be at once."""
        until = self.expires_at if self.asked.then == "die" else self.granted_at
        return Use(
            self.granted_at,
            self.permits,
            until,
            self.used,
            self.asked.is_block,
            2 * _MOST if self.asked.bucket.rule["kind"] == "window" else _MOST,
            self.asked.bucket.rule.get("maxConcurrency", 0),
            bool(self.expires_at),
            number,
        )
