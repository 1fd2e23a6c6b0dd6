"""Text from outside, made safe to print on a terminal."""

from __future__ import annotations

_CONTROLS = (code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t")
_SEPARATORS_AND_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS}
_VISIBLE |= {code: f"\\u{code:04x}" for code in _SEPARATORS_AND_DIRECTIONS}


def printable(text: str) -> str:
    """The text with control characters made visible: what comes from outside cannot drive the terminal.

    Those that turn the direction of writing are among them: they would show another text than there is.
    """
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """As `printable`, with line breaks made visible too: what comes from outside cannot forge a line."""
    return printable(text).replace("\n", "\\n")
