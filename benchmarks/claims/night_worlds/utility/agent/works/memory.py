"""What is noted about customers."""

from __future__ import annotations

import json

from works.settings import ROOT, SETTINGS

CUSTOMERS = json.loads((ROOT / "data" / "customers.json").read_text(encoding="utf-8"))


def recalled(customer: str) -> list[str]:
    """The newest notes on a customer; each begins with its date, in brackets."""
    notes = sorted(CUSTOMERS.get(customer, []), reverse=True)
    return notes[: SETTINGS.desk.notes_kept]
