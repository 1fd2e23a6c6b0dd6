"""What a dead letter holds, for any record and any text (wire 5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import dead_letters
from schemas.errors import ErrorCode
from streams.lane_records import dead_letter_record
from streams.ports import CommandRecord

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    HEADERS,
    st.text(max_size=3000),
    st.none() | st.text(max_size=30_000),
)
def test_a_dead_letter_is_the_record_with_the_reason_behind_its_own_headers(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    message: str,
    trace: str | None,
) -> None:
    record = CommandRecord("run-commands", 3, 42, 1_700_000_000_000, key, value, headers)
    letter = dead_letter_record(record, "p-run-commands", ErrorCode.INTERNAL_ERROR, message, trace)
    assert (letter.topic, letter.partition, letter.key, letter.value) == ("dead-letters", 3, key, value)
    assert letter.headers is not None
    assert list(letter.headers[: len(headers)]) == headers
    ours = dict(letter.headers[len(headers) :])
    assert ours[dead_letters.CODE] == b"INTERNAL_ERROR"
    assert ours[dead_letters.TOPIC] == b"p-run-commands"
    assert (ours[dead_letters.PARTITION], ours[dead_letters.OFFSET]) == (b"3", b"42")
    assert ours[dead_letters.TIMESTAMP] == b"1700000000000"

    kept = ours[dead_letters.MESSAGE]
    assert kept is not None
    assert len(kept) <= 1024
    assert message.encode("utf-8", "replace").startswith(kept)
    assert len(kept) > 1020 or kept == message.encode("utf-8", "replace")
    if trace is None:
        assert dead_letters.TRACEBACK not in ours
    else:
        tail = ours[dead_letters.TRACEBACK]
        assert tail is not None
        assert len(tail) <= 16 * 1024
        assert trace.encode("utf-8", "replace").endswith(tail)
        assert len(tail) > 16 * 1024 - 4 or tail == trace.encode("utf-8", "replace")


def test_a_value_over_4_mib_is_left_out_and_its_size_is_said() -> None:
    for size, kept in ((4 * 1024 * 1024, True), (4 * 1024 * 1024 + 1, False)):
        record = CommandRecord("run-commands", 0, 0, 0, b"k", b"x" * size, ())
        letter = dead_letter_record(record, "t", ErrorCode.COMMAND_TOO_LARGE, "too large")
        assert (letter.value is not None) is kept
        expected = None if kept else b"%d" % size
        assert dict(letter.headers or ()).get(dead_letters.VALUE_BYTES) == expected
