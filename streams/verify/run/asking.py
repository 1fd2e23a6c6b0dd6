"""Asks a running deployment about some runs, and compares the answers with what the changelog says of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.run.tables import HEADS
from schemas.errors import ErrorCode
from schemas.json_codec import encode
from schemas.run_results import ListResult, StatusResult
from schemas.terminals import TerminalState
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.verify.digests import NOTHING, digest, end_digest
from streams.verify.findings import Place, Rule, Tally
from streams.verify.log_source import LogSource
from streams.verify.run.view import RunView

SERVED = Rule(
    "served",
    "What a worker answers about a run is what the changelog says of it, or newer (only with `--ask`).",
    "runs that were evicted meanwhile",
)

_EVICTED = "the run was evicted meanwhile"


class Sample(NamedTuple):
    """What the changelog says of one run."""

    place: Place
    """The run's head."""
    seq: int
    status: int
    kept: Mapping[int, int]
    """`seq` -> digest of the event's JSON."""
    end: int


class Samples:
    """Chooses some runs by chance, each with the same probability, while all are looked at once."""

    def __init__(self, most: int) -> None:
        self.chosen: list[Sample] = []
        self._most = most
        self._seen = 0

    def look_at(self, view: Any) -> None:
        """Consider a run; one that is evicted, or of which nothing is stored, is passed over."""
        if not self._most or not isinstance(view, RunView):
            return
        head = view.head
        if head is None or head.evicted or not head.seq:
            return
        self._seen += 1
        place = len(self.chosen) if len(self.chosen) < self._most else random.randrange(self._seen)
        if place < self._most:
            self.chosen[place : place + 1] = [_sample(view)]


def _sample(view: RunView) -> Sample:
    assert view.head is not None
    kept = {seq: change.content for seq, change in view.kept.items()}
    end = view.stored_end.end if view.stored_end is not None else NOTHING
    return Sample(view.head_place, view.head.seq, view.head.status, kept, end)


class Questions:
    """Asks about sampled runs."""

    def __init__(self, client: RunlaneClient, source: LogSource, tally: Tally) -> None:
        self._client = client
        self._source = source
        self._tally = tally

    async def ask(self, sample: Sample) -> None:
        """Ask about one run, and compare."""
        record = self._source.fetch(sample.place)
        if record is None:
            self._tally.unknown(SERVED, "the run has moved on, and its old state was compacted")
            return
        run_id = str(HEADS.parts(record.key() or b"")[0])
        self._tally.checked(SERVED)
        try:
            status = await self._client.status(run_id)
            events = await self._events(run_id, sample)
            terminal = await self._client.get_terminal(run_id)
        except CommandRefused as refused:
            if refused.code != ErrorCode.RUN_NOT_FOUND:
                raise
            self._tally.violation(SERVED, sample.place, "the worker says that it does not know the run")
            return
        wrong = _wrong_status(sample, status)
        if wrong:
            self._tally.violation(SERVED, sample.place, wrong)
        elif sample.end != NOTHING and terminal is None and not events:
            self._tally.unknown(SERVED, _EVICTED)
        else:
            for wrong in (_wrong_end(sample, terminal), _wrong_events(sample, status.latest_seq, events)):
                if wrong:
                    self._tally.violation(SERVED, sample.place, wrong)

    async def _events(self, run_id: str, sample: Sample) -> dict[int, int]:
        """`seq` -> digest of the events that are kept now, up to the sample's last and a little further."""
        found: dict[int, int] = {}
        after = min(sample.kept, default=1) - 1
        while after < sample.seq:
            listed: ListResult = await self._client.list_events(run_id, after_seq=after)
            found |= {event["seq"]: digest(encode(event)) for event in listed.events}
            if not listed.more or not listed.events:
                break
            after = max(found)
        return found


def _wrong_status(sample: Sample, status: StatusResult) -> str:
    if status.latest_seq < sample.seq:
        return f"the worker says that the latest event is {status.latest_seq}; {sample.seq} is stored"
    # A run sleeps while its function waits: that is no change of what is stored of it.
    stored = "running" if status.status == "sleeping" else status.status
    if status.latest_seq == sample.seq and digest(stored) != sample.status:
        return f"the worker says that the status is {status.status}; another is stored"
    return ""


def _wrong_end(sample: Sample, terminal: TerminalState | None) -> str:
    if sample.end == NOTHING:
        return ""
    if terminal is None:
        return "the worker knows no terminal state; one is stored"
    if end_digest(terminal.model_dump(mode="json", by_alias=True)) != sample.end:
        return "the worker answers another terminal state than is stored"
    return ""


def _wrong_events(sample: Sample, latest: int, events: Mapping[int, int]) -> str:
    oldest = min(events, default=latest + 1)
    for seq, content in sorted(sample.kept.items()):
        if seq in events:
            if events[seq] != content:
                return f"the worker answers another event {seq} than is stored"
        elif seq > oldest or latest == sample.seq:
            return f"the worker does not list event {seq}, which is stored"
    return ""
