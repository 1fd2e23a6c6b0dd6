"""The tables that a lane keeps for itself, beside those of the machines."""

from __future__ import annotations

from agents.tables import record_table
from schemas.stored import LaneProgress, Remembered, RepeatWindow, Timer, TimerDue

PROGRESS = record_table("lane.progress", (), LaneProgress)
ANSWERS = record_table("lane.answer", (str, str, str), Remembered)
WINDOWS = record_table("lane.window", (str, str), RepeatWindow)
TIMERS = record_table("lane.timer", (int, str, str, str), Timer)
TIMERS_DUE = record_table("lane.timer_due", (str, str, str), TimerDue)
