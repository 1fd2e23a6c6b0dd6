"""Wrong bytes against what reads them: an envelope and a command, or one kind of error (spec wire 1)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.families import FAMILIES, Family
from schemas.commands import FieldError
from schemas.dead_letters import MAX_MESSAGE_BYTES
from schemas.envelope import EnvelopeError, read_envelope
from tests.fuzz.fuzzed_lane import MAX_COMMAND_BYTES
from tests.fuzz.mutations import Draft, right_headers, wrong_bytes, wrong_draft
from tests.fuzz.odd_values import PARTITIONS

_FAMILY_OF = {family.commands.topic: family for family in FAMILIES}


def read(family: Family, draft: Draft) -> str:
    """What a record turns out to be: the code of what is wrong, or the type of the command."""
    commands = family.commands
    try:
        envelope = read_envelope(
            commands,
            draft.key,
            draft.value,
            draft.headers,
            reply_partitions=PARTITIONS,
            max_bytes=MAX_COMMAND_BYTES,
        )
    except EnvelopeError as error:
        check_message(error.message)
        return error.code
    assert envelope.key.encode() == draft.key
    try:
        command = commands.parse(envelope.body)
    except FieldError as error:
        check_message(error.message)
        return error.code
    assert type(command) is commands.by_type[envelope.type]
    assert (command.type, command.command_id) == (envelope.type, envelope.command_id)
    return command.type


def check_message(message: str) -> None:
    """A message fits into a dead letter and into a line of a log."""
    assert 0 < len(message.encode()) <= MAX_MESSAGE_BYTES
    assert message.isprintable()


@given(st.randoms(use_true_random=False))
def test_mutated_commands(chance: Random) -> None:
    draft = wrong_draft(chance)
    read(_FAMILY_OF[draft.topic], draft)


@given(st.sampled_from(FAMILIES), st.none() | st.binary(max_size=20), st.binary(max_size=200), st.randoms())
@example(FAMILIES[0], b"k", b"\xff" * 200, Random(0))
def test_any_bytes(family: Family, key: bytes | None, value: bytes, chance: Random) -> None:
    read(family, Draft(family.commands.topic, key, wrong_bytes(chance, value), right_headers(chance)))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_command_and_every_code_of_the_decoder_comes_up(family: Family) -> None:
    chance = Random(1)
    drafts = [wrong_draft(chance) for _ in range(3000)]
    found = {read(family, draft) for draft in drafts if draft.topic == family.commands.topic}
    codes = {
        "INVALID_JSON",
        "INVALID_KEY",
        "KEY_MISMATCH",
        "UNKNOWN_COMMAND",
        "INVALID_COMMAND_ID",
        "INVALID_REPLY_ADDRESS",
        "INVALID_COMMAND",
    }
    assert codes | set(family.commands.by_type) <= found
