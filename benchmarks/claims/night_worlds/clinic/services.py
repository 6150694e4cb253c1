"""The clinic's systems that the front desk's tools ask over HTTP.  Some change their form on a day of some nights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import truth


def look_up(service: str, key: str, changed: Collection[str] = ()) -> Mapping[str, Any] | None:
    """What a system holds under a key; None where it holds nothing.

    Args:
        changed: systems that speak their new form.
    """
    try:
        match service:
            case "opening":
                opens, closes = truth.OPENING[key]
                return {"opens": opens, "closes": closes}
            case "wards":
                return {"until": truth.WARDS[key]}
            case "slots":
                first = truth.SLOTS[key]
                return {"free": [first, "24 December at 16:00"]} if "slots" in changed else {"next": first}
            case "appointments":
                return truth.APPOINTMENTS[key]
            case "pharmacy":
                ready = truth.PRESCRIPTIONS[key]
                if "pharmacy" in changed:
                    return {"status": "ready" if ready else "in preparation"}
                return {"ready": ready}
            case "guides":
                return {"steps": truth.GUIDES[key]}
            case "laboratory":
                return {"state": "finished" if truth.SAMPLES[key] else "waiting"}
            case "billing":
                amount = truth.BILLS[key]
                return {"rappen": round(amount * 100)} if "billing" in changed else {"amount": amount}
            case "vaccines":
                return {"doses": truth.DOSES[key]}
            case "sites":
                return {"tram_stop": truth.STOPS[key], "spaces": truth.SPACES[key]}
    except KeyError:
        return None
    return None
