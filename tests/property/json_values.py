"""Strategies of JSON values as the wire contract allows them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(INT64, st.integers(-2, 2), st.floats(allow_nan=False, allow_infinity=False))
TEXT = st.text(max_size=8)
"""Without surrogates, which Hypothesis leaves out of text that has to be encodable."""

SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
