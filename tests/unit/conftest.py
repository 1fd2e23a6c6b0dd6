"""Fixtures of the unit tests."""

from __future__ import annotations

import pytest

from tests.run_lane import RunLane


@pytest.fixture
def lane() -> RunLane:
    """A lane in memory that serves runs."""
    return RunLane()
