"""The shop's services that the agent's tools ask over HTTP: look-ups by a key.  Some change on a day of some nights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import truth


def look_up(service: str, key: str, changed: Collection[str] = ()) -> Mapping[str, Any] | None:
    """What a service says of a key; None where it knows nothing of it.

    Args:
        changed: services that speak their new form.
    """
    try:
        match service:
            case "stock":
                return {"pieces": truth.STOCK[key]}
            case "rental":
                return {"deposit": truth.RENTAL[key]}
            case "orders":
                return truth.ORDERS[key]
            case "cancellation":
                state = truth.ORDERS[key]["state"]
                return {"status": state} if "cancellation" in changed else {"state": state}
            case "invoices":
                total = truth.INVOICES[key]
                return {"cents": round(total * 100)} if "invoices" in changed else {"sum": total}
            case "cards":
                return {"balance": truth.CARDS[key]}
            case "manual":
                return {"steps": truth.MANUAL[key]}
            case "hours":
                return {"opens": truth.HOURS[key]}
            case "frost":
                return {"month": truth.FROST[key]}
            case "soil":
                return {"soil": truth.SOIL[key]}
            case "poison":
                return {"poisonous": truth.POISON[key]}
            case "places":
                return {"street": truth.STREETS[key], "parking": truth.PARKING[key]}
    except KeyError:
        return None
    return None
