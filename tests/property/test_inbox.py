"""The inbox against a log with holes and a consumer that loses chunks: every command once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.inbox import Chunk, Inbox
from streams.ports import CommandRecord

TOPIC = "run-commands"


def record(offset: int) -> CommandRecord:
    return CommandRecord(TOPIC, 0, offset, 0, b"k", b"v", ())


def chunk(offsets: list[int], previous: int, epoch: int) -> Chunk:
    return Chunk(TOPIC, previous, epoch, [record(offset) for offset in offsets], 2 * len(offsets))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[str]]:
    offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=30)))
    steps = draw(st.lists(st.sampled_from(["fetch", "lose", "late", "take", "take1", "seek"]), max_size=80))
    return offsets, steps


@given(histories(), st.integers(1, 7))
def test_every_command_is_taken_once_and_in_order_whatever_gets_lost(
    history: tuple[list[int], list[str]], fetch_size: int
) -> None:
    offsets, steps = history
    inbox = Inbox()
    taken: list[int] = []
    watermark, epoch, delivered = -1, 0, -1
    stale: list[Chunk] = []

    def seek() -> None:
        nonlocal epoch, delivered
        epoch += 1
        delivered = watermark
        inbox.restart({TOPIC: (watermark, epoch)})

    def fetch() -> Chunk | None:
        nonlocal delivered
        found = [offset for offset in offsets if offset > delivered][:fetch_size]
        if not found:
            return None
        fetched = chunk(found, delivered, epoch)
        delivered = found[-1]
        return fetched

    def take(most: int) -> None:
        nonlocal watermark
        commands, gaps = inbox.take(most, 1_000_000)
        new = [command.offset for command in commands if command.offset > watermark]
        taken.extend(new)
        if new:
            watermark = new[-1]
        if gaps:
            seek()

    seek()
    for step in steps:
        if step == "fetch" and (found := fetch()):
            inbox.put(found)
        elif step == "lose" and (found := fetch()):
            stale.append(found)
        elif step == "late" and stale:
            inbox.put(stale.pop())
        elif step == "take":
            take(1000)
        elif step == "take1":
            take(1)
        elif step == "seek":
            seek()
    while watermark < offsets[-1]:
        if found := fetch():
            inbox.put(found)
            take(1000)
        elif inbox.pending:
            take(1000)
        else:
            # What the watchdog does: something was handed out that never arrived, and nothing follows it.
            seek()
    assert taken == offsets
    assert inbox.pending == 0


def test_a_chunk_that_overtakes_the_news_of_its_seek_is_kept() -> None:
    inbox = Inbox()
    inbox.restart({TOPIC: (-1, 1)})
    inbox.put(chunk([5, 6], 4, 2))
    assert inbox.pending == 0
    inbox.restart({TOPIC: (4, 2)})
    commands, gaps = inbox.take(10, 1000)
    assert [command.offset for command in commands] == [5, 6]
    assert gaps == set()


def test_a_batch_is_cut_by_bytes_but_never_empty() -> None:
    inbox = Inbox()
    inbox.restart({TOPIC: (-1, 1)})
    big = Chunk(TOPIC, -1, 1, [record(offset) for offset in range(10)], 10_000)
    inbox.put(big)
    sizes = []
    while inbox.pending:
        commands, _ = inbox.take(1000, 2_500)
        sizes.append(len(commands))
    assert sizes == [2, 2, 2, 2, 2]
    inbox.put(Chunk(TOPIC, 9, 1, [record(10)], 50_000))
    assert len(inbox.take(1000, 2_500)[0]) == 1
