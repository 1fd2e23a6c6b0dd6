"""Metrics of rate buckets, by bucket: the first ones have a label of their own, all others share one."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from agents.rate import counting

OTHER = "other"
"""Label of all buckets that have none of their own."""

_MAX_LABEL_CHARACTERS = 100

_METRICS = {
    counting.GRANTED: ("runlane_rate_permits_granted_total", "Permits granted, those in blocks too"),
    counting.REFUSED: (
        "runlane_rate_refused_total",
        "Commands for permits that got none: at once, at their time-out, or by an error",
    ),
    counting.WAITED: ("runlane_rate_waits_total", "Commands that began to wait for permits"),
    counting.SERVED: ("runlane_rate_waits_served_total", "Commands that waited and got permits"),
    counting.PENALTIES: ("runlane_rate_penalties_total", "Cooldowns that kept permits back for longer"),
    counting.EXPIRED: ("runlane_rate_leases_expired_total", "Leases that were neither released nor settled"),
    counting.LOST: ("runlane_rate_permits_lost_total", "Permits of blocks that ran out unsettled"),
}


class RateMetrics:
    """Counters with the label `bucket`; for ever the same label for the same bucket."""

    def __init__(self, registry: CollectorRegistry, most_buckets: int) -> None:
        """`most_buckets`: so many buckets, in the order in which they are first counted, get a label."""
        self._counters = {
            name: Counter(metric, about, ["bucket"], registry=registry)
            for name, (metric, about) in _METRICS.items()
        }
        self._most_buckets = most_buckets
        self._labelled: set[str] = set()
        self._by_label: dict[tuple[str, str], Counter] = {}
        """(name, label) -> its counter, which takes the library longer to find than to count."""

    def add(self, counted: Mapping[tuple[str, str], int]) -> None:
        """Count what a committed batch has done: (name, bucket id) -> number."""
        for (name, bucket_id), number in counted.items():
            at = (name, self._label(bucket_id))
            counter = self._by_label.get(at)
            if counter is None:
                counter = self._by_label[at] = self._counters[name].labels(at[1])
            counter.inc(number)

    def _label(self, bucket_id: str) -> str:
        if bucket_id in self._labelled:
            return bucket_id
        if len(self._labelled) >= self._most_buckets or len(bucket_id) > _MAX_LABEL_CHARACTERS:
            return OTHER
        self._labelled.add(bucket_id)
        return bucket_id
