"""`whet show`: the record of what agents did."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from .app import Record, app, existing


@app.command
def show(*, store: Record, json: bool = False) -> int:
    """Say what a store holds: how much of each kind, what is live, and what was released when.

    Parameters
    ----------
    store
        The file.
    json
        Print one JSON object.
    """
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        live = opened.live()
        found: dict[str, Any] = {
            "counts": opened.counts(),
            "live": live.ids if live is not None else {},
            "releases": [
                {
                    "id": one.id,
                    "at": one.at,
                    "bundle": one.bundle.ids,
                    "reason": one.reason,
                    "verdict": one.verdict,
                    "unproven": one.unproven,
                }
                for one in opened.history()
            ],
        }
    if json:
        print(msgspec.json.encode(found).decode())
        return 0
    for name, count in found["counts"].items():
        print(f"{name:32} {count:>10,}")
    for name, id in found["live"].items():
        print(f"live {name:27} {id}")
    for release in found["releases"]:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(release["at"]))
        how = "unproven, " if release["unproven"] else ""
        print(f"released {day}: {how}{release['reason']}")
    return 0
