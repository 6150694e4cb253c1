"""`whet release` and `whet rollback`: what is live in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .app import Record, app, content_of, existing

if TYPE_CHECKING:
    from ..types import Bundle

BUNDLE = "bundle.json"
"""What `whet train` calls the file of its Versions."""


@app.command
def release(
    what: str,
    file: Path | None = None,
    /,
    *,
    store: Record,
    reason: str = "",
    json: bool = False,
) -> int:
    """Make something live: whet release FOLDER, or whet release NAME FILE

    Agents get it at their next run, and whet serve-policy --store takes it up, without a restart. The rest of what is
    live stays, and whet rollback goes back. Nothing is proven here: compare it first (Experiment.gate, whet verdict).

    Parameters
    ----------
    what
        The output folder of whet train; or, with FILE, the name of a resource, gateway.system_prompt for example.
    file
        Its content: JSON if the name ends in .json, else text.
    store
        The record; made if it does not exist.
    reason
        Why, in the history that whet show prints.
    json
        Print one JSON object: what is live now, name by name.
    """
    from ..store import Store
    from ..types import Bundle, Version

    if file is None:
        made, said = _trained(Path(what)), f"from {what}"
    else:
        content = content_of(file)
        kind = "prompt" if isinstance(content, str) else "value"
        made, said = Bundle([Version(resource=what, content=content, kind=kind)]), f"from {file}"
    with Store(store) as opened:
        live = opened.live() or Bundle()
        for version in made.values():
            live = live.put(version)
        opened.set_live(live, reason=reason or said)
    return _say(store, live, json)


@app.command
def rollback(*, store: Record, reason: str = "rollback", json: bool = False) -> int:
    """Make live what was live before; repeated, it goes further back.

    Parameters
    ----------
    store
        The file.
    reason
        Why, in the history that whet show prints.
    json
        Print one JSON object: what is live now, name by name.
    """
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        live = opened.rollback(reason=reason)
    return _say(store, live, json)


def _trained(folder: Path) -> Bundle:
    """The Versions that a training run ended with."""
    from ..errors import InputError, NotFoundError
    from ..types import Bundle, Version

    path = folder / BUNDLE
    try:
        return Bundle(msgspec.json.decode(path.read_bytes(), type=list[Version]))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"there is no {path}: give the output folder of whet train, or a name and a file: whet release NAME FILE"
        ) from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} does not hold the Versions of a training run: {error}") from error


def _say(store: Path, live: Bundle, json: bool) -> int:
    if json:
        print(msgspec.json.encode(live.ids).decode())
        return 0
    print(f"{store}: {'live now' if live.ids else 'nothing is live now'}")
    for name, id in live.ids.items():
        print(f"live {name:27} {id}")
    return 0
