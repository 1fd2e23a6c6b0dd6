"""Dead letters: records that could not be processed, unchanged, with the reason in headers (spec wire 5)."""

from __future__ import annotations

HEADER_PREFIX = "runlane."
"""Replaying a dead letter strips the headers that begin with this and keeps the rest."""

CODE = "runlane.error.code"
MESSAGE = "runlane.error.message"
TOPIC = "runlane.error.topic"
PARTITION = "runlane.error.partition"
OFFSET = "runlane.error.offset"
TIMESTAMP = "runlane.error.timestamp"
TRACEBACK = "runlane.error.traceback"
VALUE_BYTES = "runlane.error.valueBytes"
"""Set when the value was left out: over `MAX_VALUE_BYTES`, or withheld; its size in ASCII decimal."""
VALUE_WITHHELD = "runlane.error.valueWithheld"
"""Set when the value was left out because it may hold database sessions in the clear: `sessions`."""
KEY_BYTES = "runlane.error.keyBytes"
"""Set when the key was left out because it is over `MAX_KEY_AND_HEADERS_BYTES`; its size in ASCII decimal."""
HEADERS_BYTES = "runlane.error.headersBytes"
"""Set when the original headers were left out because they and the key are over that; their size."""

MAX_KEY_AND_HEADERS_BYTES = 4 * 1024 * 1024
"""A record that was sent compressed may have far larger ones; dead letters have room for 9 MiB."""
MAX_VALUE_BYTES = 4 * 1024 * 1024
MAX_MESSAGE_BYTES = 1024
MAX_TRACEBACK_BYTES = 16 * 1024
