"""Reads what the commands about children, calls and the launch of a run do with its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agents.run.signals import target_of
from schemas.commands import CommandSet, FieldError
from schemas.json_codec import InvalidJsonError, decode
from schemas.signal_commands import RunSignal
from streams.verify.digests import NOTHING
from streams.verify.reading import ReadCommand, Reading
from streams.verify.run import contents
from streams.verify.run.slot_rows import USES, Use

_Uses = Iterable[tuple[int, int, int, int]]
"""Slot, content, fencing number, use."""


def use_readers(commands: CommandSet, reading: Reading) -> Mapping[str, ReadCommand]:
    """The readers of commands that are about slots, by their type."""
    write = reading.writer(USES)

    def reader(uses_of: Callable[[Any], _Uses]) -> ReadCommand:
        def read(key: int, offset: int, value: bytes) -> None:
            try:
                command = commands.parse(decode(value))
            except (FieldError, InvalidJsonError):
                return  # Refused: it does nothing.
            for use in uses_of(command):
                write(key, offset, *use)

        return read

    return {type_: reader(uses_of) for type_, uses_of in _USES_OF.items()}


def _child(use: int) -> Callable[[Any], _Uses]:
    return lambda command: [(contents.child_slot(command.event_key), NOTHING, 0, use)]


def _set_child(command: Any) -> _Uses:
    content = contents.child_content(command.event_key, command.data)
    return [(contents.child_slot(command.event_key), content, 0, Use.FILL)]


def _signal(command: RunSignal) -> _Uses:
    event_key = target_of(command).event_key
    content = contents.child_content(event_key, command.payload)
    return [(contents.child_slot(event_key), content, 0, Use.FILL)]


def _call(use: int) -> Callable[[Any], _Uses]:
    def uses_of(command: Any) -> _Uses:
        number = command.fencing_number if use == Use.HOLD else 0
        return [(contents.call_slot(command.tool_id, command.input_hash), NOTHING, number, use)]

    return uses_of


def _publish(command: Any) -> _Uses:
    slot = contents.call_slot(command.tool_id, command.input_hash)
    if command.error is not None and command.on_failure == "release":
        return [(slot, NOTHING, command.fencing_number, Use.HOLD)]
    told = {"value": command.value} if command.error is None else {"error": command.error}
    return [(slot, contents.outcome_content(told), command.fencing_number, Use.PUBLISH)]


def _put_retry(command: Any) -> _Uses:
    state = {"params": command.params, "paramsRef": command.params_ref, "paramsBytes": command.params_bytes}
    return [(contents.RETRY, contents.retry_content(state), 0, Use.FILL)]


def _put_sessions(command: Any, use: int = Use.FILL) -> _Uses:
    sessions = [session.model_dump(by_alias=True) for session in command.sessions]
    return [(contents.SESSIONS, contents.sessions_content(sessions), 0, use)]


def _submit(command: Any) -> _Uses:
    return _put_sessions(command, Use.SUBMIT) if command.sessions is not None else []


def _put_launch(command: Any) -> _Uses:
    return [*_put_retry(command), *_put_sessions(command)]


def _put_instance(command: Any) -> _Uses:
    content = contents.instance_content(command.instance_id, command.attempt, command.ttl_ms)
    return [(contents.INSTANCE, content, 0, Use.FILL)]


_USES_OF: Mapping[str, Callable[[Any], _Uses]] = {
    "run.submit": _submit,
    "run.signal": _signal,
    "child.terminal.set": _set_child,
    "child.terminal.get": _child(Use.SHOW),
    "child.terminal.await": _child(Use.AWAIT),
    "call.claim": _call(Use.CLAIM),
    "call.renew": _call(Use.HOLD),
    "call.publish": _publish,
    "call.await": _call(Use.AWAIT),
    "retry.put": _put_retry,
    "retry.claim": lambda _: [(contents.RETRY, NOTHING, 0, Use.ATTEMPT)],
    "launch.put": _put_launch,
    "sessions.put": _put_sessions,
    "sessions.get": lambda _: [(contents.SESSIONS, NOTHING, 0, Use.SHOW)],
    "instance.put": _put_instance,
    "instance.get": lambda _: [(contents.INSTANCE, NOTHING, 0, Use.SHOW)],
    "trace.add": lambda _: [(contents.TRACES, NOTHING, 0, Use.COUNT)],
}
