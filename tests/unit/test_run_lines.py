"""Which lines of a log are a run's: by prefix, by a run id in them, in deliveries of every form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.log_tail.run_lines import MAX_LINE_BYTES, MAX_LINES, RunLine, parse_line, run_lines

RUN = "play/import-orders/run/20250131t120000000-1a2b3c4d"


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("[deepline-run:r 1]  imported 3 rows ", ("r 1", "imported 3 rows")),
        ("2025 INFO [deepline-run:r]: x", ("r", ": x")),
        ("[deepline-run:r]", ("r", "[deepline-run:r]")),
        ("[deepline-run:r] Error: x\n  at y", ("r", "Error: x\n  at y")),
        (f"done with {RUN}, next", (RUN, f"done with {RUN}, next")),
        (f"[deepline-run:q] {RUN}", ("q", RUN)),
        (f"[perf-trace] {{}} {RUN}", None),
        ("[deepline-run:] x", None),
        (f"[deepline-run:{'é' * 257}] x", None),
        (f"[deepline-run:{'r' * 512}] x", ("r" * 512, "x")),
        (f"[deepline-run:{'r' * 513}] x", None),
        ("[deepline-run:" * 70_000, None),
        ("play/" * 200_000, None),
        ("displays play/x/run/", None),
        ("nothing", None),
    ],
)
def test_a_line_s_run_and_text(line: str, parsed: tuple[str, str] | None) -> None:
    assert parse_line(line) == parsed


def test_a_long_line_is_cut() -> None:
    parsed = parse_line("[deepline-run:r] " + "é" * MAX_LINE_BYTES)
    assert parsed is not None
    assert parsed[1].endswith(f"é ... ({2 * MAX_LINE_BYTES} bytes)")
    assert len(parsed[1].encode()) < MAX_LINE_BYTES + 50


def line(number: int) -> str:
    return f"[deepline-run:r] {number}"


@pytest.mark.parametrize(
    ("delivery", "texts"),
    [
        (f"{line(1)}\n\n  {line(2)}\r\nother\n".encode(), ["1", "2"]),
        (json.dumps({"message": line(1)}).encode(), ["1"]),
        (json.dumps({"message": ["[deepline-run:r]", {"a": 1}, 2.5, None]}).encode(), ['{"a":1} 2.5 null']),
        (
            json.dumps(
                [
                    {
                        "logs": [line(1), {"message": line(2)}, {"level": "x"}, 7, None],
                        "exceptions": [line(3)],
                    },
                    {"logs": "no list", "exceptions": [{"name": "E", "on": "[deepline-run:r]"}]},
                ]
            ).encode(),
            ["1", "2", "3", '"}'],
        ),
        (json.dumps(line(1)).encode(), ['1"']),
        (b"\xff " + line(1).encode(), ["1"]),
        (b"", []),
        (b"[1]", []),
        (b"{}", []),
        (b"[]", []),
    ],
)
def test_the_lines_of_a_delivery(delivery: bytes, texts: list[str]) -> None:
    assert [found.text for found in run_lines(delivery)] == texts


def test_of_many_lines_of_a_run_the_last_hundred_are_taken_with_their_numbers() -> None:
    lines = [f"[deepline-run:{'a' if number % 3 else 'b'}] {number}" for number in range(400)]
    found = run_lines("\n".join(lines).encode())
    assert [one.number for one in found] == sorted(one.number for one in found)
    of_a = [one for one in found if one.run_id == "a"]
    assert of_a == [RunLine("a", n, str(n)) for n in range(400) if n % 3][-MAX_LINES:]
    assert len([one for one in found if one.run_id == "b"]) == MAX_LINES


json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.just(line(1))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["logs", "exceptions", "message", "x"]), inner, max_size=3),
    ),
    max_leaves=10,
)


@given(st.one_of(st.binary(max_size=60), json_values.map(lambda value: json.dumps(value).encode())))
def test_anything_can_be_read_and_gives_the_same_again(delivery: bytes) -> None:
    found = run_lines(delivery)
    assert found == run_lines(delivery)
    assert len({one.number for one in found}) == len(found)
    for one in found:
        assert 1 <= len(one.run_id.encode()) <= 512
        assert one.text
