"""Ways of breaking a history, and whether a verification finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streams.verify.findings import Place
from streams.verify.report import Report
from streams.verify.verifier import Verifier
from tests.verification.made_deployment import Deployment
from tests.verification.made_topics import At, Made, Topics

Break = Callable[[Topics], Place]
"""Breaks a history in one way; returns the record that is to be reported."""


class Breaks(list[tuple[str, Break]]):
    """Ways of breaking a history, each with the rule that it breaks."""

    def of(self, rule: str) -> Callable[[Break], Break]:
        """Marks a function as breaking a rule."""

        def mark(function: Break) -> Break:
            self.append((rule, function))
            return function

        return mark


def name_of(value: object) -> str:
    """How a parameter of a test is named."""
    return getattr(value, "__name__", str(value))


def report_on(made: Deployment, topics: Topics) -> Report:
    """What a verification says of topics."""
    return Verifier(topics, made.repeats).run()


def require_found(right: Deployment, rule: str, break_it: Break) -> None:
    """The rule, and no other, finds what is broken, at the record that is wrong."""
    topics = right.topics.copy()
    place = break_it(topics)
    found = [violation for count in report_on(right, topics).rules.values() for violation in count.shown]
    assert {violation.rule for violation in found} == {rule}, found
    assert place in [violation.place for violation in found], found


def body_of(record: Made) -> dict[str, Any]:
    """The JSON object that a record holds; empty when it holds none."""
    try:
        body = json.loads(record.own_value or b"")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def of_run(run: str, **fields: Any) -> Callable[[Made], bool]:
    """Whether a record is under a run's id and its JSON has these fields."""
    return lambda record: record.own_key == run.encode() and says(**fields)(record)


def says(**fields: Any) -> Callable[[Made], bool]:
    """Whether a record's JSON has these fields."""
    return lambda record: all(body_of(record).get(name, "") == value for name, value in fields.items())


def state_of(key: bytes) -> Callable[[Made], bool]:
    """Whether a record of the changelog has this key."""
    return lambda record: record.own_key == key


def last(topics: Topics, topic: str, wanted: Callable[[Made], bool]) -> tuple[At, Made]:
    """The last record of its partition that is wanted."""
    at, _ = topics.find(topic, wanted)
    return at, [record for record in topics.logs[at] if wanted(record)][-1]


def with_fields(record: Made, **fields: Any) -> Made:
    """The record with other fields in its JSON."""
    body = {**body_of(record), **fields}
    return replace(record, own_value=json.dumps(body).encode())
