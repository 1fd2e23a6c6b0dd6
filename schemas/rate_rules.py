"""The rules of a rate limit as clients give them (spec coordinator 7, wire 7)."""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel

from schemas.json_numbers import JsonNumber
from schemas.lenient import Number, OrDefault
from schemas.stored_rates import Limit

MAX_PERMITS = 10**12
"""More than so many at a time is as good as no limit; what is beyond counts as this."""
MAX_WINDOW_MS = 10 * 366 * 86_400_000
MAX_RULES = 32
"""Of one command."""
MAX_RULE_ID_CHARACTERS = 200

Kind = Literal["window", "sliding", "bucket"]
PositiveNumber = Annotated[JsonNumber, Field(gt=0)]


class RateRule(BaseModel):
    """One rule. Commands that name the same rule id, kind and window are counted together."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True
    )

    rule_id: Annotated[str, StringConstraints(max_length=MAX_RULE_ID_CHARACTERS)]
    """Names the rule within its bucket, at most 200 characters."""
    requests_per_window: PositiveNumber
    """How many permits a window has; a fraction of a permit is none, and what is over 10^12 counts as 10^12."""
    window_ms: JsonNumber
    """How long a window is, at most ten years; 0 or less: the rule never fills."""
    max_concurrency: Number = None
    """How many permits may be in leases at a time; null, or less than 1: no bound."""
    kind: Annotated[Kind, OrDefault("window")] = "window"
    """`window`: it starts at its first use and moves on by whole windows. `sliding`: any time span of the window's
    length. `bucket`: a full bucket of tokens that is refilled evenly within one window."""

    @property
    def limit(self) -> Limit:
        """The rule in whole numbers."""
        window_ms = min(max(0, self.window_ms), MAX_WINDOW_MS)
        most = self.max_concurrency or 0
        return Limit(
            rule_id=self.rule_id,
            kind=self.kind,
            window_ms=max(1, int(window_ms)) if window_ms > 0 else 0,
            permits=int(min(self.requests_per_window, MAX_PERMITS)),
            concurrency=int(min(max(0, most), MAX_PERMITS)),
        )


def _drop_unusable(rules: Any) -> Any:
    return [rule for rule in rules if _is_usable(rule)] if isinstance(rules, list) else rules


def _is_usable(rule: Any) -> bool:
    if not isinstance(rule, dict) or not isinstance(rule.get("ruleId"), str):
        return False
    requests = rule.get("requestsPerWindow")
    return _is_number(requests) and requests > 0 and _is_number(rule.get("windowMs"))


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _RuleList(list[RateRule]):
    """Rules that many commands name alike: what is counted for them is worked out once."""

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        return _limits_of(self)


_KNOWN: dict[bytes, _RuleList] = {}
_MOST_KNOWN = 1000
_LONGEST_KNOWN = 4096


def _recognize(rules: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(rules, list):
        return validate(rules)
    name = marshal.dumps(rules, 2)
    known = _KNOWN.get(name)
    if known is None:
        known = _RuleList(validate(rules))
        if len(name) <= _LONGEST_KNOWN:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[name] = known
    return known


Rules = Annotated[
    Annotated[list[RateRule], Field(max_length=MAX_RULES)] | None,
    BeforeValidator(_drop_unusable),
    WrapValidator(_recognize),
]
"""Rules of a command: what is no usable rule (no string id, no positive number of requests, no number as window) is
ignored. None: the rules that are stored for the bucket."""

StrictRules = Annotated[list[RateRule], Field(max_length=MAX_RULES)]
"""Rules to be stored: each must be usable."""


def limits_of(rules: Iterable[RateRule]) -> tuple[Limit, ...]:
    """The rules in whole numbers; of rules that are counted together the stricter numbers hold."""
    return rules.limits if isinstance(rules, _RuleList) else _limits_of(rules)


def _limits_of(rules: Iterable[RateRule]) -> tuple[Limit, ...]:
    merged: dict[tuple[str, str, int], Limit] = {}
    for rule in rules:
        limit = rule.limit
        at = (limit.rule_id, limit.kind, limit.window_ms)
        other = merged.get(at)
        if other is not None:
            bounds = [bound for bound in (limit.concurrency, other.concurrency) if bound]
            limit = Limit(*at, min(limit.permits, other.permits), min(bounds, default=0))
        merged[at] = limit
    return tuple(merged.values())
