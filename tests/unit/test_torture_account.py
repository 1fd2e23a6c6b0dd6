"""The account of a torture: clean for what is right, and it finds what is lost or there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from streams.torture.account import Findings, settle
from streams.torture.load import Proof
from streams.torture.sender import SentRecord

TOPIC = "run-commands"


def record(number: int, proof: Proof, *, asks: bool = True) -> SentRecord:
    """A record that the broker has acknowledged at the offset of its number."""
    return SentRecord(
        kind="events.append",
        topic=TOPIC,
        partition=0,
        key=b"r",
        value=b"value %d" % number,
        headers=(),
        command_id=None if proof is Proof.DEAD_LETTER else f"c{number}",
        correlation_id=b"to-%d" % number if asks else None,
        proof=proof,
        sent_at=0.0,
        acknowledged=True,
        offset=number,
    )


@pytest.fixture
def sent() -> list[SentRecord]:
    """One record of each kind."""
    return [
        record(0, Proof.EVENT, asks=False),
        record(1, Proof.EVENT),
        record(2, Proof.REPLY),
        record(3, Proof.DEAD_LETTER),
    ]


@pytest.fixture
def findings(sent: list[SentRecord]) -> Findings:
    """What the topics hold when all went well; an executor has sent a command too."""
    return Findings(
        events=Counter({("c0", "log"): 1, ("c1", "log"): 1, ("by-executor", "log"): 1}),
        replies=Counter({b"to-1": 1, b"to-2": 1, b"to-3": 1}),
        dead_letters=Counter({b"to-3": 1}),
        log={(TOPIC, 0, number): (b"r", b"value %d" % number) for number in range(5)},
    )


def test_what_is_right_is_clean(sent: list[SentRecord], findings: Findings) -> None:
    account = settle(sent, findings)
    assert (account.lost, account.twice) == ([], [])
    assert (account.acknowledged, account.applied, account.answered, account.buried) == (4, 2, 3, 1)
    assert (account.other_events, account.sent) == (1, {"events.append": 4})


Break = Callable[[list[SentRecord], Findings], None]


def _no_event(_: list[SentRecord], findings: Findings) -> None:
    del findings.events["c0", "log"]


def _no_reply(_: list[SentRecord], findings: Findings) -> None:
    del findings.replies[b"to-2"]


def _no_dead_letter(_: list[SentRecord], findings: Findings) -> None:
    findings.dead_letters.clear()


def _not_in_the_log(_: list[SentRecord], findings: Findings) -> None:
    del findings.log[TOPIC, 0, 1]


def _another_in_its_place(_: list[SentRecord], findings: Findings) -> None:
    findings.log[TOPIC, 0, 1] = (b"r", b"other")


def _nowhere(sent: list[SentRecord], findings: Findings) -> None:
    sent[1] = replace(sent[1], offset=None, value=b"other")


def _never_acknowledged(sent: list[SentRecord], _: Findings) -> None:
    sent[0] = replace(sent[0], acknowledged=False)


def _two_events(_: list[SentRecord], findings: Findings) -> None:
    findings.events["c0", "log"] = 2


def _two_events_of_an_executor(_: list[SentRecord], findings: Findings) -> None:
    findings.events["by-executor", "log"] = 2


def _two_replies(_: list[SentRecord], findings: Findings) -> None:
    findings.replies[b"to-1"] = 2


def _two_dead_letters(_: list[SentRecord], findings: Findings) -> None:
    findings.dead_letters[b"to-3"] = 2


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (_no_event, "made no event"),
        (_no_reply, "got no answer"),
        (_no_dead_letter, "is no dead letter"),
        (_not_in_the_log, "is not where the broker has put it"),
        (_another_in_its_place, "is not where the broker has put it"),
        (_nowhere, "is not where the broker has put it"),
        (_never_acknowledged, "was never acknowledged"),
    ],
)
def test_what_is_lost_is_found(sent: list[SentRecord], findings: Findings, broken: Break, says: str) -> None:
    broken(sent, findings)
    account = settle(sent, findings)
    assert len(account.lost) == 1
    assert says in account.lost[0]
    assert account.twice == []


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (_two_events, "c0 made 2 log events"),
        (_two_events_of_an_executor, "by-executor made 2 log events"),
        (_two_replies, "got 2 answers"),
        (_two_dead_letters, "is 2 dead letters"),
    ],
)
def test_what_is_there_twice_is_found(
    sent: list[SentRecord], findings: Findings, broken: Break, says: str
) -> None:
    broken(sent, findings)
    account = settle(sent, findings)
    assert len(account.twice) == 1
    assert says in account.twice[0]
    assert account.lost == []


def test_a_record_without_an_offset_may_be_anywhere_in_its_partition(
    sent: list[SentRecord], findings: Findings
) -> None:
    sent[1] = replace(sent[1], offset=None)
    assert settle(sent, findings).lost == []


def test_a_command_that_was_sent_twice_is_applied_once(sent: list[SentRecord], findings: Findings) -> None:
    again = replace(record(4, Proof.REPLY), command_id="c0", kind="repeat")
    findings.replies[b"to-4"] = 1
    findings.log[TOPIC, 0, 4] = (b"r", b"value 4")
    account = settle([*sent, again], findings)
    assert (account.lost, account.twice, account.applied) == ([], [], 2)
