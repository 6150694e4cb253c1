"""The loop without a hand on it: issues become proven repairs that are tried, put live, watched, and taken back."""

from .journal import Journal, JournalRow
from .night import Night, NightBudget
from .pilot import Autopilot, Mode, PilotOptions, settings_of

__all__ = [
    "Autopilot",
    "Journal",
    "JournalRow",
    "Mode",
    "Night",
    "NightBudget",
    "PilotOptions",
    "settings_of",
]
