"""Each way of breaking a history is found by exactly the rule that it breaks, at the record that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agents.rate import tables as rate_tables
from agents.run import tables
from schemas.stored import LaneProgress
from schemas.stored_rates import BucketHead, RateWait
from streams.lane_tables import ANSWERS, PROGRESS
from streams.partitioner import partition_for
from streams.verify.families import RULES
from streams.verify.findings import Place
from streams.verify.verifier import Verifier
from tests.verification.breaking import (
    Break,
    Breaks,
    body_of,
    last,
    name_of,
    of_run,
    report_on,
    require_found,
    says,
    state_of,
    with_fields,
)
from tests.verification.made_deployment import COMMANDS, PARTITIONS, Deployment
from tests.verification.made_topics import CHANGELOG, At, Made, Topics
from tests.verification.test_wrong_rates import RATE_BREAKS
from tests.verification.test_wrong_slots import SLOT_BREAKS

BREAKS = Breaks()
breaks = BREAKS.of


@pytest.fixture(scope="module")
def right() -> Deployment:
    """A deployment in which everything happened as it should, with all that a rule may look at."""
    made = Deployment()
    for number in range(6):
        run = f"run-{number}"
        made.send("run.submit", run, command_id=f"{run}-submit", name="n")
        for line in range(5):
            made.send("events.append", run, command_id=f"{run}-{line}", event=log(f"line {line}"))
        made.work()
    for number in range(3):
        result = {"rows": number}
        made.send(
            "terminal.set", f"run-{number}", command_id=f"run-{number}-end", status="completed", result=result
        )
        made.send("events.append", f"run-{number}", command_id=f"run-{number}-late", event=log("late"))
    made.send("run.submit", "asked", command_id="asked-submit", asks=True, name="n")
    made.send("events.append", "asked", command_id="asked-1", asks=True, event=log("one"))
    made.send("events.append", "asked", command_id="asked-1", asks=True, event=log("one again"))
    made.send("events.list", "asked", command_id="asked-list", asks=True)
    made.send("terminal.set", "asked", command_id="asked-end", asks=True, status="failed", error="e")
    made.send("events.append", "asked", command_id="asked-late", asks=True, event=log("late"))
    made.send("events.append", "strayed", command_id="strayed-1", misplaced=True, event=log("one"))
    made.send_raw(b"run-0", b"not JSON", made.address())
    made.send_raw(b"run-1", b"not JSON either", (("own", b"header"),))
    for number in range(502):
        made.send("events.append", "long", event=log("x"))
        if number == 400:
            made.settle()
    made.send("events.append", "strayed", command_id="strayed-2", event=log("two"))
    made.settle()
    made.pass_time(1000)
    return made


def log(line: str) -> dict[str, str]:
    """A log event as a client sends it."""
    return {"type": "log", "line": line}


def test_the_history_is_right_before_it_is_broken(right: Deployment) -> None:
    report = report_on(right, right.topics)
    assert report.violations == 0
    fates = {fate: number for fate, number in report.commands.items() if number}
    assert fates == {
        "applied": 6 * 6 + 3 + 3 + 2 + 502,
        "refused": 4,
        "repeated": 1,
        "questions": 1,
        "forwarded": 1,
        "dead-lettered": 2,
    }


def test_every_rule_is_broken_by_a_test() -> None:
    asked_for = {"served"}
    assert {rule for rule, _ in (*BREAKS, *SLOT_BREAKS, *RATE_BREAKS)} | asked_for == {
        rule.name for rule in RULES
    }


@pytest.mark.parametrize(("rule", "break_it"), BREAKS, ids=name_of)
def test_what_is_broken_is_found_by_its_rule_alone(right: Deployment, rule: str, break_it: Break) -> None:
    require_found(right, rule, break_it)


@breaks("seq")
def an_event_comes_again(topics: Topics) -> Place:
    return topics.append(*topics.find("run-events", of_run("run-3", seq=3)))


@breaks("seq")
def an_event_is_missing(topics: Topics) -> Place:
    at, record = topics.find("run-events", of_run("run-3", seq=4))
    topics.remove(at, record)
    following = topics.find("run-events", of_run("run-3", seq=5))[1]
    return Place(*at, following.at)


@breaks("seq")
def the_first_event_is_missing(topics: Topics) -> Place:
    at, record = topics.find("run-events", of_run("run-3", seq=1))
    topics.remove(at, record)
    return Place(*at, topics.find("run-events", of_run("run-3", seq=2))[1].at)


@breaks("after-end")
def an_event_follows_the_end(topics: Topics) -> Place:
    # As a lane would that has forgotten the end: its state says the same.
    at, command = topics.find(COMMANDS, of_run("run-0", commandId="run-0-late"))
    event = {"seq": 8, "runId": "run-0", "type": "log", "ts": 5, "line": "late", "commandId": "run-0-late"}
    value = json.dumps(event).encode()
    place = topics.append(("run-events", at[1]), command, own_value=value, own_headers=())
    keep_event(topics, at[1], "run-0", 8, value)
    where, end = topics.find(CHANGELOG, state_of(tables.TERMINALS.key("run-0")))
    topics.append(where, end, own_value=None)
    return place


def keep_event(topics: Topics, partition: int, run: str, seq: int, value: bytes) -> None:
    """Make the changelog say that an event is the latest of a run that goes on."""
    at = (CHANGELOG, partition)
    _, head = last(topics, CHANGELOG, state_of(tables.HEADS.key(run)))
    stored = {name: field for name, field in body_of(head).items() if name != "ended_at"}
    running = json.dumps({**stored, "status": "running", "latest_seq": seq}).encode()
    topics.append(at, head, own_value=running)
    topics.append(at, head, own_key=tables.EVENTS.key(run, seq), own_value=value)


@breaks("order")
def events_are_in_another_order_than_their_commands(topics: Topics) -> Place:
    at, third = topics.find("run-events", of_run("run-3", seq=3))
    fourth = topics.find("run-events", of_run("run-3", seq=4))[1]
    swap_makers(topics, at, third, fourth)
    return Place(*at, fourth.at)


def swap_makers(topics: Topics, at: At, one: Made, other: Made) -> None:
    """Swap the commands of two events, in the topic and in the state."""
    ids = [body_of(record)["commandId"] for record in (one, other)]
    for record, command_id in ((one, ids[1]), (other, ids[0])):
        changed = with_fields(record, commandId=command_id)
        topics.put(at, changed)
        run, seq = (record.own_key or b"").decode(), body_of(record)["seq"]
        where, kept = last(topics, CHANGELOG, state_of(tables.EVENTS.key(run, seq)))
        topics.put(where, replace(kept, own_value=changed.own_value))


@breaks("twice")
def a_command_takes_effect_twice(topics: Topics) -> Place:
    at, record = topics.find("run-events", of_run("run-3", seq=6))
    again = with_fields(record, seq=7)
    place = topics.append(at, again)
    keep_event(topics, at[1], "run-3", 7, again.own_value or b"")
    return place


@breaks("origin")
def a_command_was_never_sent(topics: Topics) -> Place:
    topics.remove(*topics.find(COMMANDS, of_run("run-3", commandId="run-3-2")))
    at, event = topics.find("run-events", of_run("run-3", commandId="run-3-2"))
    return Place(*at, event.at)


@breaks("origin")
def a_dispatch_is_of_no_command(topics: Topics) -> Place:
    at, record = topics.find("run-dispatch", of_run("run-4"))
    return topics.append(at, with_fields(record, commandId="nobody's"))


@breaks("command")
def a_refused_command_is_not_remembered(topics: Topics) -> Place:
    topics.remove(*topics.find(CHANGELOG, state_of(ANSWERS.key("run", "run-0", "run-0-late"))))
    at, command = topics.find(COMMANDS, of_run("run-0", commandId="run-0-late"))
    return Place(*at, command.at)


@breaks("command")
def a_command_is_jumped_over(topics: Topics) -> Place:
    at, command = topics.find(COMMANDS, of_run("run-0", commandId="run-0-late"))
    return topics.put(at, with_fields(command, commandId="jumped over"))


@breaks("command")
def a_wrong_command_has_no_dead_letter(topics: Topics) -> Place:
    topics.remove(*topics.find("dead-letters", lambda record: record.own_value == b"not JSON either"))
    at, command = topics.find(COMMANDS, lambda record: record.own_value == b"not JSON either")
    return Place(*at, command.at)


@breaks("dead-letter")
def a_dead_letter_is_unlike_its_command(topics: Topics) -> Place:
    at, letter = topics.find("dead-letters", lambda record: record.own_value == b"not JSON either")
    return topics.put(at, replace(letter, own_value=b"something else"))


@breaks("dead-letter")
def a_dead_letter_has_lost_a_header(topics: Topics) -> Place:
    at, letter = topics.find("dead-letters", lambda record: record.own_value == b"not JSON either")
    return topics.put(at, replace(letter, own_headers=letter.own_headers[1:]))


@breaks("dead-letter")
def a_dead_letter_comes_again(topics: Topics) -> Place:
    return topics.append(*topics.find("dead-letters"))


@breaks("dead-letter")
def a_dead_letter_is_of_no_command(topics: Topics) -> Place:
    at, letter = topics.find("dead-letters")
    headers = dict(letter.own_headers) | {"runlane.error.offset": b"99999"}
    return topics.append(at, letter, own_headers=tuple(headers.items()))


@breaks("dead-letter")
def a_dead_letter_names_no_command(topics: Topics) -> Place:
    return topics.append(*topics.find("dead-letters"), own_headers=(("runlane.error.code", b"INVALID_JSON"),))


@breaks("forward")
def a_misplaced_command_is_not_forwarded(topics: Topics) -> Place:
    right_partition = partition_for(b"strayed", PARTITIONS)
    at, command = topics.find(COMMANDS, of_run("strayed"))
    if at[1] == right_partition:
        topics.remove(at, command)
        at, command = topics.find(COMMANDS, of_run("strayed"))
    else:
        copy = next(r for r in topics.logs[COMMANDS, right_partition] if r.own_key == b"strayed")
        topics.remove((COMMANDS, right_partition), copy)
    return Place(*at, command.at)


@breaks("terminal")
def a_terminal_state_is_missing(topics: Topics) -> Place:
    topics.remove(*topics.find("run-terminals", of_run("run-1")))
    at, event = topics.find("run-events", of_run("run-1", type="terminal"))
    return Place(*at, event.at)


@breaks("terminal")
def a_terminal_state_differs(topics: Topics) -> Place:
    at, record = topics.find("run-terminals", of_run("run-1"))
    return topics.put(at, with_fields(record, result={"rows": 7}))


@breaks("terminal")
def a_terminal_state_comes_again(topics: Topics) -> Place:
    return topics.append(*topics.find("run-terminals", of_run("run-1")))


@breaks("terminal")
def a_terminal_state_is_of_a_run_that_goes_on(topics: Topics) -> Place:
    _, record = topics.find("run-terminals", of_run("run-1"))
    at = ("run-terminals", partition_for(b"run-4", PARTITIONS))
    state = with_fields(record, runId="run-4", seq=6, commandId="run-4-4")
    return topics.append(at, replace(state, own_key=b"run-4"))


@breaks("dispatch")
def a_run_is_not_dispatched(topics: Topics) -> Place:
    topics.remove(*topics.find("run-dispatch", of_run("run-2")))
    at, event = topics.find("run-events", of_run("run-2", seq=1))
    return Place(*at, event.at)


@breaks("dispatch")
def a_run_is_dispatched_twice(topics: Topics) -> Place:
    return topics.append(*topics.find("run-dispatch", of_run("run-2")))


@breaks("state")
def an_event_is_stored_otherwise(topics: Topics) -> Place:
    at, kept = topics.find(CHANGELOG, state_of(tables.EVENTS.key("run-3", 3)))
    return topics.put(at, with_fields(kept, line="another"))


@breaks("state")
def an_event_is_not_stored(topics: Topics) -> Place:
    at, kept = topics.find(CHANGELOG, state_of(tables.EVENTS.key("run-3", 3)))
    topics.remove(at, kept)
    return Place(*at, last(topics, CHANGELOG, state_of(tables.HEADS.key("run-3")))[1].at)


@breaks("state")
def an_old_event_is_still_stored(topics: Topics) -> Place:
    at, deleted = last(topics, CHANGELOG, state_of(tables.EVENTS.key("long", 1)))
    assert deleted.own_value is None
    topics.remove(at, deleted)
    return Place(*at, topics.find(CHANGELOG, state_of(tables.EVENTS.key("long", 1)))[1].at)


@breaks("state")
def the_latest_event_is_not_on_the_topic(topics: Topics) -> Place:
    at, event = last(topics, "run-events", of_run("run-4"))
    topics.remove(at, event)
    where, head = last(topics, CHANGELOG, state_of(tables.HEADS.key("run-4")))
    return Place(*where, head.at)


@breaks("state")
def a_status_is_wrong(topics: Topics) -> Place:
    at, head = last(topics, CHANGELOG, state_of(tables.HEADS.key("run-1")))
    return topics.put(at, with_fields(head, status="failed"))


@breaks("state")
def a_run_is_forgotten(topics: Topics) -> Place:
    for key in [tables.HEADS.key("run-4"), *(tables.EVENTS.key("run-4", seq) for seq in range(1, 7))]:
        at, record = last(topics, CHANGELOG, state_of(key))
        topics.append(at, record, own_value=None)
    at, event = last(topics, "run-events", of_run("run-4"))
    return Place(*at, event.at)


@breaks("state")
def the_stored_end_differs(topics: Topics) -> Place:
    at, end = topics.find(CHANGELOG, state_of(tables.TERMINALS.key("run-1")))
    return topics.put(at, with_fields(end, error="another"))


@breaks("reply")
def a_reply_names_another_seq(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-1"))
    return topics.put(at, with_fields(reply, result={"seq": 3, "ts": 1_700_000_000_000}))


@breaks("reply")
def a_reply_names_another_time(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-1"))
    return topics.put(at, with_fields(reply, result={"seq": 2, "ts": 1}))


@breaks("reply")
def a_submit_is_answered_with_another_seq(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-submit"))
    result = body_of(reply)["result"]
    return topics.put(at, with_fields(reply, result={**result, "seq": 2}))


@breaks("reply")
def a_reply_holds_another_end(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-end"))
    result = body_of(reply)["result"]
    return topics.put(
        at, with_fields(reply, result={**result, "terminal": {**result["terminal"], "error": "x"}})
    )


@breaks("reply")
def an_applied_command_is_refused(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-1"))
    body = {"commandId": "asked-1", "ok": False, "error": {"code": "RUN_ENDED", "message": "m"}}
    return topics.put(at, replace(reply, own_value=json.dumps(body).encode()))


@breaks("reply")
def a_refused_command_is_accepted(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-late"))
    body = {"commandId": "asked-late", "ok": True, "result": {"seq": 4, "ts": 1}}
    return topics.put(at, replace(reply, own_value=json.dumps(body).encode()))


@breaks("reply")
def one_command_gets_two_answers(topics: Topics) -> Place:
    _, again = last(topics, COMMANDS, of_run("asked", commandId="asked-1"))
    correlation_id = dict(again.own_headers)["correlation-id"]
    at, reply = topics.find("replies", lambda record: record.own_key == correlation_id)
    return topics.put(at, with_fields(reply, result={**body_of(reply)["result"], "more": 1}))


@breaks("reply")
def a_question_is_answered_from_old_state(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-list"))
    return topics.put(at, with_fields(reply, result={"events": [], "latestSeq": 1, "firstSeq": 1}))


@breaks("reply")
def a_reply_comes_twice(topics: Topics) -> Place:
    return topics.append(*topics.find("replies", says(commandId="asked-submit")))


@breaks("reply")
def a_reply_is_missing(topics: Topics) -> Place:
    topics.remove(*topics.find("replies", says(commandId="asked-submit")))
    at, command = topics.find(COMMANDS, of_run("asked", commandId="asked-submit"))
    return Place(*at, command.at)


@breaks("reply")
def a_reply_goes_to_another_partition(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-submit"))
    topics.remove(at, reply)
    return topics.append(("replies", (at[1] + 1) % PARTITIONS), reply)


@breaks("reply")
def nobody_asked(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId="asked-submit"))
    other = b"someone else"
    return topics.append(at, reply, own_key=other, own_headers=(("correlation-id", other),))


@breaks("reply")
def a_dead_letter_is_answered_with_another_code(topics: Topics) -> Place:
    at, reply = topics.find("replies", says(commandId=None))
    return topics.put(at, with_fields(reply, error={"code": "INVALID_KEY", "message": "m"}))


@breaks("watermark")
def a_transaction_number_comes_again(topics: Topics) -> Place:
    return topics.append(*last(topics, CHANGELOG, state_of(PROGRESS.key())))


@breaks("watermark")
def a_watermark_goes_back(topics: Topics) -> Place:
    at, record = last(topics, CHANGELOG, state_of(PROGRESS.key()))
    progress = PROGRESS.decode(record.own_value or b"")
    ahead = replaced(progress, COMMANDS, progress.watermarks[COMMANDS] + 5, progress.transactions + 1)
    topics.append(at, record, own_value=PROGRESS.encode(ahead))
    back = replaced(progress, COMMANDS, progress.watermarks[COMMANDS], progress.transactions + 2)
    return topics.append(at, record, own_value=PROGRESS.encode(back))


@breaks("watermark")
def a_watermark_is_behind_the_end_of_the_log(topics: Topics) -> Place:
    at, record = last(topics, CHANGELOG, state_of(PROGRESS.key()))
    progress = PROGRESS.decode(record.own_value or b"")
    ahead = replaced(progress, COMMANDS, 99_999, progress.transactions + 1)
    return topics.append(at, record, own_value=PROGRESS.encode(ahead))


def replaced(progress: LaneProgress, topic: str, offset: int, transactions: int) -> LaneProgress:
    """The progress with another watermark and transaction number."""
    return LaneProgress(
        watermarks={**progress.watermarks, topic: offset}, clock=progress.clock, transactions=transactions
    )


@breaks("watermark")
def an_event_is_visible_that_the_changelog_does_not_know(topics: Topics) -> Place:
    at, event = last(topics, "run-events", of_run("run-3"))
    _, command = last(topics, COMMANDS, of_run("run-3"))
    topics.append((COMMANDS, at[1]), with_fields(command, commandId="torn"))
    return topics.append(at, with_fields(event, seq=7, commandId="torn"))


@breaks("partition")
def an_event_is_in_another_partition_too(topics: Topics) -> Place:
    at, record = topics.find("run-events", of_run("run-3", seq=3))
    return topics.append(("run-events", (at[1] + 1) % PARTITIONS), record)


@breaks("schema")
def an_event_is_no_event(topics: Topics) -> Place:
    at, record = topics.find("run-events", of_run("run-3", seq=3))
    return topics.append(at, record, own_value=b'{"seq":"3"}')


@breaks("schema")
def an_event_has_another_run_id_than_its_key(topics: Topics) -> Place:
    at, record = last(topics, "run-events", of_run("run-3"))
    changed = with_fields(record, runId="another")
    topics.put(at, changed)
    where, kept = last(topics, CHANGELOG, state_of(tables.EVENTS.key("run-3", 6)))
    topics.put(where, replace(kept, own_value=changed.own_value))
    return Place(*at, record.at)


@breaks("schema")
def a_stored_record_is_unreadable(topics: Topics) -> Place:
    at, record = topics.find(CHANGELOG, lambda record: (record.own_key or b"").startswith(b"lane.timer\0"))
    return topics.put(at, replace(record, own_value=b'{"v":77}'))


@breaks("schema")
def a_reply_is_no_reply(topics: Topics) -> Place:
    return topics.append(*topics.find("replies"), own_value=b'{"ok":true}')


def test_only_the_first_violations_are_kept_and_all_are_counted(right: Deployment) -> None:
    topics = right.topics.copy()
    at = ("run-events", partition_for(b"long", PARTITIONS))
    topics.logs[at] = [record for record in topics.logs[at] if record.at % 3]
    report = Verifier(topics, right.repeats, shown_per_rule=5).run()
    seq = next(count for rule, count in report.rules.items() if rule.name == "seq")
    assert len(seq.shown) == 5
    assert seq.violations > 100


def test_a_verification_of_one_run_sees_only_that_run(right: Deployment) -> None:
    topics = right.topics.copy()
    an_event_comes_again(topics)
    for run, violations in (("run-3", 1), ("run-4", 0)):
        report = Verifier(topics, right.repeats, only=run.encode()).run()
        assert report.violations == violations
        assert report.commands["applied"] == 6


@breaks("bucket")
def a_bucket_counts_a_lease_that_is_not_stored(topics: Topics) -> Place:
    _, record = topics.find(CHANGELOG)
    key, head = rate_tables.BUCKETS.key("org:provider"), BucketHead(next_number=2, leases=1)
    at = (CHANGELOG, partition_for(b"org:provider", PARTITIONS))
    return topics.append(at, record, own_key=key, own_value=rate_tables.BUCKETS.encode(head))


@breaks("bucket")
def a_bucket_forgets_who_waits(topics: Topics) -> Place:
    _, record = topics.find(CHANGELOG)
    wait = RateWait(
        command_id="w", addresses=(), asked_at=1, limits=(), requested=1, minimum=1, lease_ms=1000
    )
    key, head = rate_tables.BUCKETS.key("org:provider"), BucketHead(next_number=2)
    at = (CHANGELOG, partition_for(b"org:provider", PARTITIONS))
    topics.append(
        at,
        record,
        own_key=rate_tables.WAITS.key("org:provider", "", 1),
        own_value=rate_tables.WAITS.encode(wait),
    )
    return topics.append(at, record, own_key=key, own_value=rate_tables.BUCKETS.encode(head))
