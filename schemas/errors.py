"""Every error code of runlane, in one place: what it means and what to do about it.

A code is stable: clients may branch on it. The message beside it is for people and may change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ErrorCode(StrEnum):
    """Stable codes of error replies and dead letters."""

    COMMAND_TOO_LARGE = "COMMAND_TOO_LARGE"
    INVALID_JSON = "INVALID_JSON"
    INVALID_KEY = "INVALID_KEY"
    KEY_MISMATCH = "KEY_MISMATCH"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    INVALID_COMMAND_ID = "INVALID_COMMAND_ID"
    INVALID_REPLY_ADDRESS = "INVALID_REPLY_ADDRESS"
    INVALID_COMMAND = "INVALID_COMMAND"
    INVALID_RUN_EVENT = "INVALID_RUN_EVENT"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    RUN_ENDED = "RUN_ENDED"
    RUN_NOT_ENDED = "RUN_NOT_ENDED"
    ATTEMPT_SUPERSEDED = "ATTEMPT_SUPERSEDED"
    TOO_MANY_WAITS = "TOO_MANY_WAITS"
    CALL_FENCED = "CALL_FENCED"
    RETRY_STATE_REQUIRED = "RETRY_STATE_REQUIRED"
    RETRY_STATE_TOO_LARGE = "RETRY_STATE_TOO_LARGE"
    WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED = "WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED"
    SESSION_NOT_ENCRYPTED = "SESSION_NOT_ENCRYPTED"
    SESSIONS_NOT_FOUND = "SESSIONS_NOT_FOUND"
    INVALID_TRACE = "INVALID_TRACE"
    RATE_RULES_REQUIRED = "RATE_RULES_REQUIRED"
    RATE_RULES_CHANGED = "RATE_RULES_CHANGED"
    RATE_TOO_MANY_RULES = "RATE_TOO_MANY_RULES"
    RATE_NEVER_GRANTED = "RATE_NEVER_GRANTED"
    RATE_QUEUE_FULL = "RATE_QUEUE_FULL"
    RATE_GRANT_NOT_FOUND = "RATE_GRANT_NOT_FOUND"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    COMMANDS_EXPIRED = "COMMANDS_EXPIRED"


class ErrorInfo(NamedTuple):
    """What a code means, what to do about it, and where it shows.

    That is a `reply`, a `dead-letter`, or the `client`, for what it finds by itself.
    """

    meaning: str
    advice: str
    shows_in: tuple[str, ...]


_BOTH = ("reply", "dead-letter")

ERRORS: dict[ErrorCode, ErrorInfo] = {
    ErrorCode.COMMAND_TOO_LARGE: ErrorInfo(
        "The command's value, uncompressed, is over the limit (1 MiB by default).",
        "Put large inputs into an object store and send a reference.",
        _BOTH,
    ),
    ErrorCode.INVALID_JSON: ErrorInfo(
        "The value is missing, is not RFC 8259 JSON in UTF-8, or is not one object.",
        "Send one JSON object: no BOM, no NaN or Infinity, integers within 64 bits, nesting at most 64.",
        _BOTH,
    ),
    ErrorCode.INVALID_KEY: ErrorInfo(
        "The record's key is missing, empty, over 512 bytes, or not UTF-8.",
        "Use the entity's id (run id, bucket id, ...) as the record's key.",
        _BOTH,
    ),
    ErrorCode.KEY_MISMATCH: ErrorInfo(
        "The entity's id in the value is missing or is not the record's key, byte for byte.",
        "Set the id field (runId, bucketId, ...) to exactly the record's key.",
        _BOTH,
    ),
    ErrorCode.UNKNOWN_COMMAND: ErrorInfo(
        "`type` is missing or names no command of this topic.",
        "Check the spelling, and the topic: each command type belongs to one topic.",
        _BOTH,
    ),
    ErrorCode.INVALID_COMMAND_ID: ErrorInfo(
        "`commandId` is missing, not a string, empty, or over 200 characters.",
        "Give every intent its own id of 1 to 200 characters, and keep it when you send it again.",
        _BOTH,
    ),
    ErrorCode.INVALID_REPLY_ADDRESS: ErrorInfo(
        "The headers `reply-partition` and `correlation-id` are not a valid pair. Nothing was executed.",
        "Send both or none: an existing partition of the replies topic, and 1 to 200 bytes.",
        ("dead-letter",),
    ),
    ErrorCode.INVALID_COMMAND: ErrorInfo(
        "A field of a known command is missing, has the wrong type, or contradicts another.",
        "Correct the field that the message names, and send the command with a new id.",
        ("reply",),
    ),
    ErrorCode.INVALID_RUN_EVENT: ErrorInfo(
        "The event fits none of the types `status`, `log`, `progress`.",
        "See the fields of each type; end a run with `terminal.set` instead of a terminal event.",
        ("reply",),
    ),
    ErrorCode.RUN_NOT_FOUND: ErrorInfo(
        "Nothing is known of this run.", "Check the run id; submit the run first.", ("reply",)
    ),
    ErrorCode.RUN_ENDED: ErrorInfo(
        "The run has ended; the first end stands. While it is kept, `error.terminal` holds it.",
        "Use a new run id for new work.",
        ("reply",),
    ),
    ErrorCode.RUN_NOT_ENDED: ErrorInfo(
        "Only a run that has ended can be finished.",
        "End it with `terminal.set` or `run.cancel`.",
        ("reply",),
    ),
    ErrorCode.ATTEMPT_SUPERSEDED: ErrorInfo(
        "The command comes from an executor instance or attempt that is not the run's current one.",
        "Stop working on this dispatch: another attempt has taken over.",
        ("reply",),
    ),
    ErrorCode.TOO_MANY_WAITS: ErrorInfo(
        "1,000 commands wait on this run already.", "Share one wait, or follow `run-events`.", ("reply",)
    ),
    ErrorCode.CALL_FENCED: ErrorInfo(
        "The fencing number does not hold (any more): another one got the call, or its result is published. "
        "`error.fencingNumber` is the newest one that was given; 0 when nobody has claimed the call.",
        "Drop what was executed under this number, and claim the call again: it is executed once.",
        ("reply",),
    ),
    ErrorCode.RETRY_STATE_REQUIRED: ErrorInfo(
        "Neither `params` nor `paramsRef` is there.",
        "Send one of them; null stands for a run without parameters.",
        ("reply",),
    ),
    ErrorCode.RETRY_STATE_TOO_LARGE: ErrorInfo(
        "The retry state would have more bytes of JSON (`error.bytes`) than are kept (`error.maxBytes`).",
        "Put the parameters into an object store and send `paramsRef`, as the client's `launch` does.",
        ("reply",),
    ),
    ErrorCode.WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED: ErrorInfo(
        "The launch state could not be stored, so the run was not dispatched. The message says why.",
        "Remove the cause and launch the run again, with the same run id.",
        ("client",),
    ),
    ErrorCode.SESSION_NOT_ENCRYPTED: ErrorInfo(
        "A database session is not encrypted as the contract wants it. Nothing was stored.",
        "Encrypt sessions before they are sent (`KeyRing` does); change the credentials of one that was "
        "sent in the clear, since the command topic holds it.",
        ("reply",),
    ),
    ErrorCode.SESSIONS_NOT_FOUND: ErrorInfo(
        "The run has no database sessions, or they have expired.",
        "Ask again after a moment when they are just being stored; else put them again.",
        ("reply",),
    ),
    ErrorCode.INVALID_TRACE: ErrorInfo(
        "The trace lacks a field, is another run's, or has more than 32 KiB.",
        "Send `source`, `phase`, `ts` and `ms`; leave large details out.",
        ("reply",),
    ),
    ErrorCode.RATE_RULES_REQUIRED: ErrorInfo(
        "The command names no rules, and none are stored for the bucket.",
        "Send `rules`, or store the bucket's rules with `runlane rates apply`.",
        ("reply",),
    ),
    ErrorCode.RATE_RULES_CHANGED: ErrorInfo(
        "The stored rules have another version (`error.version`) than `expectedVersion`.",
        "Read the rules, and decide again whether to replace them.",
        ("reply",),
    ),
    ErrorCode.RATE_TOO_MANY_RULES: ErrorInfo(
        "256 different rules (rule id, kind, window) of the bucket are in use.",
        "Name the same few rules in every command; a rule that counts nothing any more is forgotten.",
        ("reply",),
    ),
    ErrorCode.RATE_NEVER_GRANTED: ErrorInfo(
        "A rule allows fewer permits (`error.limit`) than the command wants at least (`error.minimum`).",
        "Ask for less, or raise the rule's `requestsPerWindow` or `maxConcurrency`.",
        ("reply",),
    ),
    ErrorCode.RATE_QUEUE_FULL: ErrorInfo(
        "10,000 commands wait for the bucket, or 2,000 of the same run (`error.waiting`, `error.limit`).",
        "Ask again later; ask for blocks of permits instead of single ones.",
        ("reply",),
    ),
    ErrorCode.RATE_GRANT_NOT_FOUND: ErrorInfo(
        "The lease has ended, or the acquire cannot be settled: settled before, without a grant, or too old.",
        "Settle a lease before it expires, and an acquire soon; nothing is owed for one that is forgotten.",
        ("reply",),
    ),
    ErrorCode.OUTPUT_TOO_LARGE: ErrorInfo(
        "What the command would write does not fit into a record. Nothing of it took effect.",
        "Send a smaller result, or a reference to it.",
        _BOTH,
    ),
    ErrorCode.INTERNAL_ERROR: ErrorInfo(
        "A bug: the command made the coordinator fail. Nothing of it took effect.",
        "Report the dead letter's traceback; replay the dead letter once the bug is fixed.",
        _BOTH,
    ),
    ErrorCode.COMMANDS_EXPIRED: ErrorInfo(
        "The topic's retention deleted commands that were never processed; the message gives the range.",
        "Raise the topic's retention; send the lost commands again.",
        ("dead-letter",),
    ),
}
