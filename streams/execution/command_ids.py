"""Ids of the commands that an execution sends, derived so that executing it again sends the same ones."""

from __future__ import annotations

from hashlib import blake2b

from schemas.dispatches import Dispatch

_LONGEST_INSTANCE = 110
"""A run id in lower case (100 characters) and a retry's number; anything longer is not ours and is hashed."""


class CommandIds:
    """`<hash of the run id>/<instanceId>/<attempt>/<position>`, at most 200 characters (wire 1).

    The position counts the events of the execution, from 1: a function that does the same again sends the
    same ids, so its commands take effect once.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        instance = dispatch.instance_id
        if len(instance) > _LONGEST_INSTANCE:
            instance = _hash(instance)
        self._prefix = f"{_hash(dispatch.run_id)}/{instance}/{dispatch.attempt}/"

    def event(self, position: int) -> str:
        """The id of the execution's event number `position`."""
        return f"{self._prefix}{position}"

    def end(self, number: int) -> str:
        """The id of the run's end; a second one is sent when the first was refused."""
        return f"{self._prefix}end-{number}"

    def signal(self, digest: str, number: int) -> str:
        """The id of a signal: the digest of what it says to whom, and which one of those that say the same."""
        return f"{self._prefix}signal-{digest}-{number}"

    def position_of(self, command_id: object) -> int:
        """The position in an id that `event` made for this execution; 0 for any other."""
        if not isinstance(command_id, str) or not command_id.startswith(self._prefix):
            return 0
        position = command_id[len(self._prefix) :]
        return int(position) if position.isdecimal() else 0


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=10).hexdigest()
