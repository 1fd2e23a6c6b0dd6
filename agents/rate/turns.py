"""Who waits for permits, and whose turn it is: in order within a run, fairly between runs (spec coordinator 7).

The scheme is self-clocked fair queueing (Golestani, 1994), which serves as deficit round robin does, without a quantum
to choose. Each run that waits has one turn, for the command that has waited longest in it. A turn's tag is the tag of
the turn that was served last when the run's turn began, plus what the command costs; the turn with the smallest tag is
served next, and of equal ones that which began first. So a run that begins to wait is served after at most one turn of
each other run with commands that cost no more, however many they have waiting; permits are shared evenly, not
commands; and nobody starves, since every service brings the tags of those that wait closer. Commands without a run
share one queue.

The bucket's queue is one: who is first in it holds up all behind, also those whose own rules would let them through.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from agents.machine import AT_ONCE, Answer, Decision, FiredTimer, View
from agents.rate import refusals
from agents.rate.bucket import MAX_STORED_RULES, Bucket
from agents.rate.counting import SERVED, WAITED, count_answer
from agents.rate.granting import Wish, grant, nothing
from agents.rate.tables import QUEUES, TURNS, WAIT_PLACES, WAITS
from schemas.replies import ReplyAddress
from schemas.stored import replace
from schemas.stored_rates import Address, RateQueue, RateTurn, RateWait, RateWaitPlace

MAX_WAITING = 10_000
"""Commands that wait for one bucket."""
MAX_WAITING_OF_RUN = 2000

SERVE = "serve"
"""The bucket's timer that serves the next turn: due when time alone makes its permits free."""
TIMER = "wait"
"""The timers by which commands stop waiting."""

MAX_ADDRESSES = 100
"""A waiting command that is sent more often is answered at the last so many."""

MAX_SERVED = 500
"""In one go; the others are served right after."""

_MAX_COST = 10**9
_MAX_TAG = 2**62


def is_full(bucket: Bucket, run_id: str) -> Decision | None:
    """The refusal when no more commands may wait, of the run or of all."""
    if bucket.head.waiting >= MAX_WAITING:
        return refusals.queue_full(bucket.head.waiting, MAX_WAITING, of_run=False)
    queue = bucket.view.get(QUEUES, bucket.key, run_id)
    if queue is not None and queue.waiting >= MAX_WAITING_OF_RUN:
        return refusals.queue_full(queue.waiting, MAX_WAITING_OF_RUN, of_run=True)
    return None


def begin(bucket: Bucket, wish: Wish, run_id: str, reply_to: ReplyAddress, timeout_ms: int) -> None:
    """Let a command wait at the end of its run's queue, and serve it when that was all that was missing."""
    decision, key, head = bucket.decision, bucket.key, bucket.head
    number = bucket.take_number()
    wait = RateWait(
        command_id=wish.command_id,
        addresses=(Address(*reply_to),),
        asked_at=wish.asked_at,
        limits=wish.limits,
        requested=wish.requested,
        minimum=wish.minimum,
        lease_ms=wish.lease_ms,
        is_block=wish.is_block,
    )
    decision.put(WAITS, (key, run_id, number), wait)
    decision.put(WAIT_PLACES, (key, wish.command_id), RateWaitPlace(run_id=run_id, number=number))
    decision.schedule(f"{TIMER}:{number}", bucket.now + timeout_ms, [run_id, number])
    decision.count(WAITED)
    bucket.update(waiting=head.waiting + 1)
    queue = bucket.view.get(QUEUES, key, run_id)
    if queue is not None:
        decision.put(QUEUES, (key, run_id), replace(queue, waiting=queue.waiting + 1))
        return
    tag = _tag(bucket.head.turn, wait)
    decision.put(TURNS, (key, tag, number), RateTurn(run_id=run_id))
    decision.put(QUEUES, (key, run_id), RateQueue(waiting=1, tag=tag, number=number))
    if not head.waiting or (tag, number) < (head.first_tag, head.first_number):
        bucket.update(first_tag=tag, first_number=number)
        _serve_at(bucket, wait)


def answer_there_too(bucket: Bucket, place: RateWaitPlace, reply_to: ReplyAddress | None) -> None:
    """A command that waits came again: it waits once, and is answered as often as it was sent."""
    at = (bucket.key, place.run_id, place.number)
    wait = bucket.view.get(WAITS, *at)
    if wait is not None and reply_to is not None:
        addresses = (*wait.addresses, Address(*reply_to))[-MAX_ADDRESSES:]
        bucket.decision.put(WAITS, at, replace(wait, addresses=addresses))


def serve(bucket: Bucket) -> None:
    """Serve turn after turn until the next one has to wait; its timer tells when to go on."""
    if bucket.head.waiting:
        _Service(bucket).run()


def serve_timer(timer: FiredTimer, view: View) -> Decision:
    """The permits that the next turn waits for may be free by now."""
    bucket = Bucket(timer.key, view, timer.now)
    serve(bucket)
    return bucket.finish()


def time_out(timer: FiredTimer, view: View) -> Decision:
    """Answer a command whose time to wait is over; the next one of its run takes its place."""
    bucket = Bucket(timer.key, view, timer.now)
    run_id, number = timer.payload
    at = (timer.key, run_id, number)
    wait = view.get(WAITS, *at)
    queue = view.get(QUEUES, timer.key, run_id)
    if wait is None or queue is None:
        return bucket.decision
    decision = bucket.decision
    _answer(decision, wait, Answer(True, nothing(bucket, wish_of(wait))))
    decision.delete(WAITS, at)
    decision.delete(WAIT_PLACES, (timer.key, wait.command_id))
    bucket.update(waiting=bucket.head.waiting - 1)
    heirs = view.scan(WAITS, timer.key, run_id)
    (_, _, first), _ = next(heirs)
    if first != number:
        decision.put(QUEUES, (timer.key, run_id), replace(queue, waiting=queue.waiting - 1))
        return bucket.finish()
    decision.delete(TURNS, (timer.key, queue.tag, queue.number))
    _, heir = next(heirs, (None, None))
    if heir is None:
        decision.delete(QUEUES, (timer.key, run_id))
    else:
        tag = min(queue.tag - _cost(wait) + _cost(heir), _MAX_TAG)
        decision.put(TURNS, (timer.key, tag, queue.number), RateTurn(run_id=run_id))
        decision.put(
            QUEUES, (timer.key, run_id), RateQueue(waiting=queue.waiting - 1, tag=tag, number=queue.number)
        )
    # Who is first may be another one now: it is seen by the next decision, for this one cannot see its own changes.
    if bucket.head.waiting:
        decision.schedule(SERVE, AT_ONCE)
    else:
        _rest(bucket)
    return bucket.finish()


def wish_of(wait: RateWait) -> Wish:
    """What a waiting command wants."""
    return Wish(
        wait.command_id,
        wait.asked_at,
        wait.limits,
        wait.requested,
        wait.minimum,
        wait.lease_ms,
        wait.is_block,
    )


class _Service:
    """Serves turns within one decision, which cannot see its own changes: it keeps them in memory meanwhile."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._stored = bucket.view.scan(TURNS, bucket.key)
        self._turns: list[tuple[int, int, str]] = []
        """A heap of (tag, number, run id): the next stored turn, and those that have begun meanwhile."""
        self._queues: dict[str, _Queue] = {}
        """Of the runs whose turn it was."""

    def run(self) -> None:
        bucket = self._bucket
        self._add_stored_turn()
        for _ in range(MAX_SERVED):
            tag, _, run_id = self._turns[0]
            at, wait = self._queue(run_id).first
            answer = self._try(wish_of(wait))
            if answer is None:
                self._leave()
                _serve_at(bucket, wait)
                return
            decision = bucket.decision
            _answer(decision, wait, answer)
            decision.count(SERVED)
            decision.cancel(f"{TIMER}:{at[2]}")
            decision.delete(WAITS, at)
            decision.delete(WAIT_PLACES, (bucket.key, wait.command_id))
            bucket.update(waiting=bucket.head.waiting - 1, turn=tag)
            self._end_turn()
            if not bucket.head.waiting:
                self._leave()
                return
        self._leave()
        bucket.decision.schedule(SERVE, AT_ONCE)

    def _try(self, wish: Wish) -> Answer | None:
        """The answer to a command that can be served."""
        bucket = self._bucket
        count = bucket.grantable(wish.limits, wish.requested, wish.minimum)
        if not count:
            return None
        if not bucket.has_room(wish.limits):
            return refusals.too_many_rules(MAX_STORED_RULES)
        return Answer(True, grant(bucket, wish, count))

    def _add_stored_turn(self) -> None:
        for (_, tag, number), turn in self._stored:
            heapq.heappush(self._turns, (tag, number, turn.run_id))
            return

    def _queue(self, run_id: str) -> _Queue:
        queue = self._queues.get(run_id)
        if queue is None:
            view, key = self._bucket.view, self._bucket.key
            stored = view.get(QUEUES, key, run_id)
            if stored is None:
                raise LookupError("a turn has no queue")
            queue = self._queues[run_id] = _Queue(stored, iter(view.scan(WAITS, key, run_id)))
        return queue

    def _end_turn(self) -> None:
        """The first turn was served: the run's next command begins another one, if it has one."""
        bucket = self._bucket
        tag, number, run_id = heapq.heappop(self._turns)
        queue = self._queues[run_id]
        if queue.is_stored:
            bucket.decision.delete(TURNS, (bucket.key, tag, number))
            self._add_stored_turn()
        if queue.advance():
            queue.turn = (_tag(tag, queue.first[1]), bucket.take_number())
            heapq.heappush(self._turns, (*queue.turn, run_id))

    def _leave(self) -> None:
        """Store what has become of the queues, and whose turn is next."""
        bucket, decision = self._bucket, self._bucket.decision
        for run_id, queue in self._queues.items():
            if queue.is_stored:
                continue
            at = (bucket.key, run_id)
            if queue.waiting:
                tag, number = queue.turn
                decision.put(TURNS, (bucket.key, tag, number), RateTurn(run_id=run_id))
                decision.put(QUEUES, at, RateQueue(waiting=queue.waiting, tag=tag, number=number))
            else:
                decision.delete(QUEUES, at)
        if self._turns:
            tag, number, _ = self._turns[0]
            bucket.update(first_tag=tag, first_number=number)
        else:
            _rest(bucket)


class _Queue:
    """The waiting commands of one run while turns are served."""

    def __init__(self, stored: RateQueue, waits: Iterator[tuple[tuple[str, str, int], RateWait]]) -> None:
        self.waiting = stored.waiting
        self.turn = (stored.tag, stored.number)
        self.is_stored = True
        """None of it was served yet."""
        self._waits = waits
        self.first = next(waits)
        """Where the longest waiting command is stored, and what it wants."""

    def advance(self) -> bool:
        """Go on to the next command; False when there is none."""
        self.is_stored = False
        self.waiting -= 1
        if self.waiting:
            self.first = next(self._waits)
        return self.waiting > 0


def _serve_at(bucket: Bucket, wait: RateWait) -> None:
    """Serve the first turn when it is time. When leases have to end for it, that is when it is looked at again."""
    ready, needs_leases = bucket.ready_at(wait.limits, wait.minimum)
    if needs_leases:
        bucket.decision.cancel(SERVE)
    else:
        bucket.decision.schedule(SERVE, ready)


def _rest(bucket: Bucket) -> None:
    """Nobody waits any more."""
    bucket.update(turn=0, first_tag=0, first_number=0)
    bucket.decision.cancel(SERVE)


def _answer(decision: Decision, wait: RateWait, answer: Answer) -> None:
    count_answer(decision, answer)
    for number, address in enumerate(wait.addresses):
        to = ReplyAddress(address.partition, address.correlation_id)
        decision.answer_late(to, wait.command_id, answer, remember=not number)


def _tag(served: int, wait: RateWait) -> int:
    return min(served + _cost(wait), _MAX_TAG)


def _cost(wait: RateWait) -> int:
    """What a command may be given at most, in permits."""
    return min(wait.requested, _MAX_COST, *(limit.permits for limit in wait.limits))
