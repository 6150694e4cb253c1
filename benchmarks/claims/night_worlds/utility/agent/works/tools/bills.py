"""Bills, and days on which something is due."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

from works import upstream
from works.settings import SETTINGS
from works.tools.registry import tool


def _total(answer: dict[str, Any]) -> float:
    return answer["amount"] if "amount" in answer else answer["total"]["rappen"] / 100


@tool
async def bill_sum(bill: str) -> dict[str, Any]:
    """The sum of a bill, in francs."""
    return {"bill": bill, "amount": _total(await upstream.fetch("billing", bill))}


@tool
def instalment(amount: float, parts: int) -> dict[str, Any]:
    """One of equal parts of an amount, rounded up to 5 rappen."""
    return {"parts": parts, "each": math.ceil(amount / parts * 20) / 20}


@tool
async def due_date(bill: str) -> dict[str, Any]:
    """The day until which a bill has to be paid."""
    issued = date.fromisoformat((await upstream.fetch("billing", bill))["issued"])
    return {"bill": bill, "due": str(issued + timedelta(days=SETTINGS.rules.payment_days))}


@tool
def notice_by(leaving: str) -> dict[str, Any]:
    """The last day to give notice for somebody who leaves on a day (dd.mm.yyyy)."""
    last = datetime.strptime(leaving, "%d.%m.%Y").date() - timedelta(days=SETTINGS.rules.notice_days)
    return {"leaving": leaving, "notice_by": str(last)}


@tool
async def inspection(number: str) -> dict[str, Any]:
    """The day of an inspection."""
    return {"inspection": number, "day": (await upstream.fetch("inspections", number.upper()))["day"]}
