"""Rules from a file: what is read, and how what is wrong is named by line and field."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.rate_files import RulesFileError, read_rules

RIGHT = """\
buckets:
  org:openai:
    - ruleId: rpm
      requestsPerWindow: 500
      windowMs: 60000
      kind: sliding
    - {ruleId: busy, requestsPerWindow: 1000000, windowMs: 1000, maxConcurrency: 20}
  org:none: []
"""


def test_a_right_file_is_read() -> None:
    found = read_rules(RIGHT, "f")
    assert list(found) == ["org:openai", "org:none"]
    limits = [rule.limit for rule in found["org:openai"]]
    assert [(limit.rule_id, limit.kind, limit.permits, limit.concurrency) for limit in limits] == [
        ("rpm", "sliding", 500, 0),
        ("busy", "window", 1_000_000, 20),
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "windowMs: 60000",
            "windowMs: 1 minute",
            "line 5: org:openai[0].windowMs: Input should be a valid integer",
        ),
        ("windowMs: 60000", "windowMs: true", "line 5: org:openai[0].windowMs: "),
        ("windowMs: 60000", "windowMs: 0", "line 5: org:openai[0].windowMs: Input should be greater"),
        ("windowMs: 60000", "window: 60000", "line 5: org:openai[0].window: Extra inputs are not permitted"),
        (
            "windowMs: 60000",
            "windowMs: 60000\n      windowMs: 1",
            "line 6: org:openai[0].windowMs: stands here twice",
        ),
        ("      windowMs: 60000\n", "", "line 3: org:openai[0].windowMs: Field required"),
        (
            "kind: sliding",
            "kind: slidng",
            "line 6: org:openai[0].kind: Input should be 'window', 'sliding' or 'bucket'",
        ),
        ("ruleId: rpm", "ruleId: 7", "line 3: org:openai[0].ruleId: Input should be a valid string"),
        ("requestsPerWindow: 500", "requestsPerWindow: 0.5", "line 4: org:openai[0].requestsPerWindow: "),
        (
            "maxConcurrency: 20",
            "maxConcurrency: 0",
            "line 7: org:openai[1].maxConcurrency: Input should be greater",
        ),
        ("org:none: []", "org:none: {}", "line 8: org:none: a list of rules should stand here"),
        ("org:none: []", "org:none: [1]", "line 8: org:none[0]: a rule has fields"),
        ("org:none: []", "org:openai: []", "line 8: buckets.org:openai: stands here twice"),
        ("org:none: []", "'': []", "line 8: buckets: a bucket id has 1 to 512 bytes"),
        ("org:none: []", '"a\\ud800": []', "line 8: buckets: a bucket id has 1 to 512 bytes of UTF-8"),
        ("org:none: []", "'a\0': []", "line 8: not YAML: the character '\\x00' may not stand here"),
        ("windowMs: 60000", "windowMs: 1:30", "line 5: org:openai[0].windowMs: neither text nor a decimal"),
        ("windowMs: 60000", "windowMs: 0600", "line 5: org:openai[0].windowMs: neither text nor a decimal"),
        ("ruleId: rpm", "ruleId: &a [*a]", "line 3: org:openai[0].ruleId: neither text nor a decimal number"),
        (
            "ruleId: rpm",
            "ruleId: !own rpm",
            "line 3: org:openai[0].ruleId: neither text nor a decimal number",
        ),
        ("windowMs: 60000", f"windowMs: {'9' * 5000}", "line 5: org:openai[0].windowMs: "),
        ("org:none: []", f"org:none: {'[' * 3000}{']' * 3000}", "nested too deeply"),
        ("buckets:", "bucket:", "line 1: bucket: not known here, only `buckets` is"),
        ("ruleId: rpm", "ruleId: [", "line 5: not YAML"),
        (
            "{ruleId: busy, requestsPerWindow: 1000000, windowMs: 1000, maxConcurrency: 20}",
            "{ruleId: rpm, requestsPerWindow: 1, windowMs: 60000, kind: sliding}",
            "line 7: org:openai[1].ruleId: another rule of this id, kind and window stands above",
        ),
    ],
)
def test_what_is_wrong_is_named_by_line_and_field(old: str, new: str, told: str) -> None:
    assert old in RIGHT
    with pytest.raises(RulesFileError) as refused:
        read_rules(RIGHT.replace(old, new, 1), "f")
    assert any(told in problem for problem in refused.value.problems), refused.value.problems


@pytest.mark.parametrize("text", ["", "- 1", "buckets:", "x", "{}"])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(RulesFileError):
        read_rules(text, "f")


@given(st.text(st.sampled_from("abuckets:{}[]-,&*!|>'\"\\ \n\t07.#?")))
def test_no_text_makes_reading_fail_otherwise(text: str) -> None:
    for whole in (text, f"buckets:\n  b: {text}", f"buckets:\n  b:\n    - {text}"):
        with suppress(RulesFileError):
            read_rules(whole, "f")
