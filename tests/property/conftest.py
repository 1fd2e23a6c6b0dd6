"""How Hypothesis runs here: no time limit per example, since the machine may be busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("runlane", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("runlane")
