"""Text from outside, made safe to print on a terminal."""

from __future__ import annotations

_CONTROLS = (code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t")
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS}


def printable(text: str) -> str:
    """The text with control characters made visible: what comes from outside cannot drive the terminal."""
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """As `printable`, with line breaks made visible too: what comes from outside cannot forge a line."""
    return printable(text).replace("\n", "\\n")
