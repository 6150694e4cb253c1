"""The services of the works that the desk's tools ask over HTTP.  Some change their form on a day of some nights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import truth


def look_up(service: str, key: str, changed: Collection[str] = ()) -> Mapping[str, Any] | None:
    """What a service holds under a key; None where it holds nothing.

    Args:
        changed: services that speak their new form.
    """
    new = service in changed
    try:
        match service:
            case "meters":
                now, before = truth.METERS[key]["kwh"], truth.METERS[key]["before"]
                if new:
                    return {"register": {"kwh": now * 1000, "before": before * 1000}, "unit": "Wh"}
                return {"kwh": now, "before": before}
            case "chargers":
                return {"plugs": truth.CHARGERS[key]}
            case "billing":
                bill = truth.BILLS[key]
                if new:
                    return {"issued": bill["issued"], "total": {"rappen": round(bill["amount"] * 100)}}
                return bill
            case "inspections":
                return {"day": truth.INSPECTIONS[key]}
            case "calendar":
                return {"weekday": truth.CALENDAR[key]}
            case "interruptions":
                return truth.INTERRUPTIONS[key]
            case "counters":
                return {"opens": truth.OPENING[key]}
            case "guides":
                return {"steps": truth.GUIDES[key]}
            case "lamps":
                repaired = truth.LAMPS[key]
                return {"state": "R" if repaired else "O"} if new else {"repaired": repaired}
            case "visits":
                first = truth.VISITS[key]
                return {"slots": [{"on": first}, {"on": "23 December"}]} if new else {"first": first}
            case "addresses":
                return {"street": truth.ADDRESSES[key]}
    except KeyError:
        return None
    return None
