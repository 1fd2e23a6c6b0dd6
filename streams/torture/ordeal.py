"""A torture from its first to its last step: start, load, harm, wait for everything, check, clean up."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from streams.settings import Settings
from streams.torture.account import Account, read_findings, settle
from streams.torture.faults import Faults
from streams.torture.generators import GENERATORS
from streams.torture.load import LoadGenerator
from streams.torture.observer import Observer
from streams.torture.outages import Outages
from streams.torture.pauses import FaultWindow, Pauses
from streams.torture.schedule import FaultKind, PlannedFault, plan
from streams.torture.sender import Sender, SentRecord
from streams.torture.site import Site
from streams.torture.verification import broken_rules, verify
from streams.verify.report import Report

_STANDS_STILL_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True)
class TortureOptions:
    """What was asked for: the same options give the same faults in the same order, and the same load."""

    faults: int
    seed: int
    workers: int
    executors: int
    partitions: int
    rate: float
    """Commands of the load per second."""
    pace_s: float
    """Mean time from one fault to the next."""
    alone: float = 1.0
    """See `streams.torture.schedule.plan`."""
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    minutes: float | None = None
    """When these are over, no further fault is begun, however many were asked for. None: all are."""

    def schedule(self) -> list[PlannedFault]:
        """The faults."""
        return plan(
            self.seed,
            self.faults,
            workers=self.workers,
            executors=self.executors,
            pace_s=self.pace_s,
            alone=self.alone,
            kinds=self.kinds,
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a torture."""

    options: TortureOptions
    started: datetime
    seconds: float
    """From the first command until everything had had its effect."""
    windows: list[FaultWindow]
    longest_wait_s: float
    """Of all commands."""
    account: Account
    counts: dict[str, int]
    """What the generators of the load count besides, by what it is called."""
    verified: Report
    """What `runlane verify` says."""
    events: int
    doubled_requests: int
    """How many requests the broker got twice."""
    problems: list[str]
    """What must not be, in words; empty when all is well."""
    folder: Path | None
    """Where the processes' logs and data are; None when they are gone."""


class StandsStill(Exception):
    """Something that has to happen does not."""


@dataclass
class Progress:
    """What there is to see of a torture while it runs."""

    planned: int
    pauses: Pauses
    sender: Sender
    observer: Observer
    faults: Faults
    news: str = ""


Step = Callable[[str], None]
Judge = Callable[[Settings, Sequence[SentRecord]], list[str]]
"""(where the topics are, what the load sent) -> what is wrong with the topics' content, in words.

Called in a thread, when everything is done and only the broker still runs.
"""
OnFault = Callable[[FaultWindow], None]


class Torture:
    """One torture, to be run once."""

    def __init__(
        self,
        base: Settings,
        options: TortureOptions,
        *,
        step: Step,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        judges: Sequence[Judge] = (),
    ) -> None:
        """`step` gets a line per step; `on_progress` is called once, when the first fault is about to come.

        `judges` look at the topics beside the torture's own account and `runlane verify`.
        """
        self._base = base
        self._options = options
        self._step = step
        self._on_progress = on_progress
        self._judges = list(judges)
        self._schedule = options.schedule()
        self._problems: list[str] = []

    async def run(self, *, keep: bool = False) -> Outcome:
        """Do it. The folder stays when something is wrong, or with `keep`.

        Raises `UserError` when it cannot be done at all. Ends every process that it started, also when it is
        cancelled.
        """
        options = self._options
        folder = Path(tempfile.mkdtemp(prefix="runlane-torture-"))
        stays = True
        site = Site(
            self._base.model_copy(update={"partitions": options.partitions}),
            folder,
            workers=options.workers,
            executors=options.executors,
            source=random.Random(f"links/{options.seed}"),
        )
        try:
            await site.open(self._step)
            outcome = await self._run(site)
            stays = keep or bool(outcome.problems)
        except asyncio.CancelledError:
            stays = keep
            raise
        finally:
            await site.close()
            if stays:
                self._step(f"keeping logs and data in {folder}")
            else:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return outcome

    async def _run(self, site: Site) -> Outcome:
        options = self._options
        generators = [
            generator(random.Random(f"load/{generator.name}/{options.seed}")) for generator in GENERATORS
        ]
        pauses = Pauses(options.partitions)
        observer = Observer(site.settings, generators, pauses)
        sender = Sender(
            site.settings,
            generators,
            rate=options.rate,
            source=random.Random(f"sender/{options.seed}"),
            expect=observer.expect,
        )
        faults = Faults(site, pauses)
        watch = asyncio.create_task(faults.watch())
        started, began = datetime.now(UTC), time.monotonic()
        observer.start()
        sender.start()
        try:
            await self._until_first_effects(observer, site.outages)
            self._on_progress(Progress(len(self._schedule), pauses, sender, observer, faults))
            await self._harm(faults, pauses, sender, observer, site.outages)
            self._step("waiting until everything that was sent has had its effect")
            await asyncio.to_thread(sender.stop)
            await self._until_all_effects(observer, generators, site.outages)
            await faults.until_all_work()
        except StandsStill as error:
            self._problems.append(str(error))
        finally:
            watch.cancel()
            sender.abandon()
            observer.stop()
        seconds = time.monotonic() - began
        self._step("stopping the workers and executors")
        self._problems += faults.problems + await site.stop()
        self._step("comparing what was sent with what the topics hold")
        findings = await asyncio.to_thread(
            read_findings, site.settings, sorted({generator.topic.name for generator in generators})
        )
        account = await asyncio.to_thread(settle, sender.sent, findings)
        for generator in generators:
            self._problems += generator.problems()
        for judge in self._judges:
            self._problems += await asyncio.to_thread(judge, site.settings, sender.sent)
        self._step("runlane verify: holding all topics against its rules")
        verified = await asyncio.to_thread(verify, site.settings)
        return Outcome(
            options=options,
            started=started,
            seconds=seconds,
            windows=pauses.windows,
            longest_wait_s=pauses.longest_wait_s,
            account=account,
            counts={name: count for generator in generators for name, count in generator.counts().items()},
            verified=verified,
            events=findings.events.total(),
            doubled_requests=sum(link.copies for link in site.links),
            problems=[*account.lost, *account.twice, *broken_rules(verified), *self._problems],
            folder=site.folder,
        )

    async def _harm(
        self, faults: Faults, pauses: Pauses, sender: Sender, observer: Observer, outages: Outages
    ) -> None:
        """All faults, each when its time has come; returns when everything flows again."""
        tasks: set[asyncio.Task[None]] = set()

        async def calm() -> None:
            while tasks or pauses.in_progress:
                for task in [task for task in tasks if task.done()]:
                    tasks.discard(task)
                    task.result()
                sender.raise_problem()
                observer.raise_problem()
                _require_flow(pauses, outages)
                await asyncio.sleep(_POLL_S)

        try:
            was_alone = False
            minutes = self._options.minutes
            ends_at = math.inf if minutes is None else time.monotonic() + 60 * minutes
            for fault in self._schedule:
                if fault.alone or was_alone:
                    await calm()
                if time.monotonic() > ends_at:
                    self._step("the time is up: no further faults")
                    break
                await asyncio.sleep(fault.after_s)
                tasks.add(asyncio.create_task(faults.carry_out(fault)))
                was_alone = fault.alone
            await calm()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_first_effects(self, observer: Observer, outages: Outages) -> None:
        began = time.monotonic()
        while not (observer.events and observer.replies and observer.dead_letters):
            observer.raise_problem()
            if outages.served_s(began, time.monotonic()) > _STANDS_STILL_S:
                raise StandsStill(f"Nothing has come of the load in {_STANDS_STILL_S:.0f} s.")
            await asyncio.sleep(_POLL_S)

    async def _until_all_effects(
        self, observer: Observer, generators: Sequence[LoadGenerator], outages: Outages
    ) -> None:
        while True:
            open_ends = sum(generator.unfinished() for generator in generators)
            if not (observer.awaited or open_ends):
                return
            observer.raise_problem()
            if outages.served_s(observer.newest_at, time.monotonic()) > _STANDS_STILL_S:
                raise StandsStill(
                    f"{observer.awaited} effects and {open_ends} ends are still due when nothing has come for "
                    f"{_STANDS_STILL_S:.0f} s."
                )
            await asyncio.sleep(_POLL_S)


def _require_flow(pauses: Pauses, outages: Outages) -> None:
    now = time.monotonic()
    for window in pauses.in_progress:
        if window.undone_at is not None and outages.served_s(window.undone_at, now) > _STANDS_STILL_S:
            raise StandsStill(
                f"Only partitions {sorted(window.flowed)} flow {_STANDS_STILL_S:.0f} s after {window.fault.label}, "
                f"fault {window.fault.number}, was over."
            )
