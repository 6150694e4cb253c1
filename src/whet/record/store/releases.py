"""The release log, and the resource names that are read.

A Bundle that is recorded (`Store.put_bundle`) can be run under by its id; only a release makes it live, and every
rollout, worker, gateway, traced program and policy server that names no other Bundle gets the live one.  Its name is
"live"; another name is another log, of another agent in the same record.  A shadow or a canary is an entry of the same
log under its stage: what is live is the last entry of that stage, and what is on trial is the last one of its trial.
So no moment has two that are live, and none has none.  Reading is here; `staging.py` makes the entries.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from ...errors import InputError, NotFoundError, StoreError
from ...types import Bundle, Version
from .database import DatabaseReader
from .queries import read_all

LIVE = "live"
PROGRAM = "program"
"""Kind of a whole file, which no code reads from the record."""
GATEWAY_MODEL, GATEWAY_PARAMETERS = "gateway.model", "gateway.parameters"
GATEWAY_PROMPT, GATEWAY_ROUTE = "gateway.system_prompt", "gateway.route"
GATEWAY = (GATEWAY_MODEL, GATEWAY_PARAMETERS, GATEWAY_PROMPT, GATEWAY_ROUTE)
"""Resources that the gateway reads."""
POLICY = "policy"
"""The resource that `whet train` writes and `whet serve-policy` reads, unless they are given another name."""
DECLARED = "resources/"
"""Prefix of the states that say which resources a program of this record has declared."""
_NEWEST = 10_000
"""Trajectories that are looked through for the resources that they ran under."""


class Stage(StrEnum):
    """How far a Bundle has come.  What is before SHADOW follows from its Verdicts, the rest stands in the log."""

    DRAFT = "draft"
    """Recorded; no Verdict promotes it."""
    GATED = "gated"
    """Its newest Verdict promotes it."""
    SHADOW = "shadow"
    """Runs beside what is live; nobody is served by it."""
    CANARY = "canary"
    """Serves a share of those who come."""
    LIVE = "live"
    RETIRED = "retired"
    """Was on trial or live, and is not any more."""


TRIALS = (Stage.SHADOW, Stage.CANARY)
"""Stages of which several Bundles may be at once."""
UNITS = ("session", "subject", "run")
"""What a canary is drawn by; one that is drawn keeps it."""


@dataclass(frozen=True, slots=True)
class Release:
    """One entry of the release log of a name: a Bundle that came to a stage."""

    id: str
    name: str
    bundle: Bundle
    """What runs: the Versions that were released, beside what was live under other names."""
    previous: str | None
    """`id` of the release that a rollback of this one goes back to; None is the agent as it came."""
    at: float
    """Unix time in seconds."""
    reason: str
    verdict: str | None = None
    """`id` of the Verdict that it was released on."""
    unproven: bool = True
    """Released without a proof, on request; a shadow needs none."""
    stage: Stage = Stage.LIVE
    share: float = 0.0
    """Of a canary, the share of units that it serves; of a shadow, the share that runs under it, too."""
    unit: str = "session"
    """One of `UNITS`."""
    candidate: str = ""
    """Id of the Bundle as it was released, without what was live beside it."""
    trial: str = ""
    """`id` of the first entry of the same trial, which its later shares and stages share."""
    base: str | None = None
    """Id of the Bundle that was live when it was made; None in an entry from before that was kept."""


_COLUMNS = (
    "id, name, previous, at, reason, verdict, unproven, stage, share, unit, candidate, trial, base, body"
)


def history(reader: DatabaseReader, name: str, last: int | None) -> list[Release]:
    """See `Store.history`."""
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM releases WHERE name = ? AND stage = 'live' ORDER BY seq DESC LIMIT ?",
        # To SQLite a LIMIT of -1 is none.
        [name, -1 if last is None else last],
    )
    return [_entry(reader, *row) for row in reversed(rows)]


def release_log(reader: DatabaseReader, name: str, last: int | None) -> list[Release]:
    """See `Store.release_log`."""
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM releases WHERE name = ? ORDER BY seq DESC LIMIT ?",
        [name, -1 if last is None else last],
    )
    return [_entry(reader, *row) for row in reversed(rows)]


def trials(reader: DatabaseReader, name: str) -> list[Release]:
    """See `Store.on_trial`."""
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM releases AS entry WHERE name = ? AND stage IN ('shadow', 'canary') AND seq = "
        "(SELECT max(seq) FROM releases WHERE trial = entry.trial) ORDER BY seq",
        [name],
    )
    return [_entry(reader, *row) for row in rows]


def entry_of(reader: DatabaseReader, id: str) -> Release:
    """The entry of the log with this id.

    Raises:
        NotFoundError: there is none.
    """
    for row in reader.rows(f"SELECT {_COLUMNS} FROM releases WHERE id = ?", [id]):
        return _entry(reader, *row)
    raise NotFoundError(f"the record holds no release {id!r}.")


def live_id(reader: DatabaseReader, name: str) -> str | None:
    """Id of the release that is live; None where nothing was released."""
    rows = reader.rows(
        "SELECT id FROM releases WHERE name = ? AND stage = 'live' ORDER BY seq DESC LIMIT 1", [name]
    )
    return rows[0][0] if rows else None


def newest_id(reader: DatabaseReader, name: str) -> str | None:
    """Id of the newest entry, of whatever stage; None of an empty log."""
    rows = reader.rows("SELECT id FROM releases WHERE name = ? ORDER BY seq DESC LIMIT 1", [name])
    return rows[0][0] if rows else None


def _entry(
    reader: DatabaseReader, id: str, name: str, previous: str | None, at: float, *rest: Any
) -> Release:
    reason, verdict, unproven, stage, share, unit, candidate, trial, base, body = rest
    bundle = stored_bundle(reader, body, f"release {id}")
    return Release(
        id,
        name,
        bundle,
        previous,
        at,
        reason,
        verdict,
        bool(unproven),
        Stage(stage),
        share,
        unit,
        # An entry from before Bundles had an id in the log names none.
        candidate or bundle.id,
        trial or id,
        base,
    )


def stored_bundle(reader: DatabaseReader, body: bytes, of: str) -> Bundle:
    """The Bundle of which the record has the ids of its Versions.

    Raises:
        StoreError: one of them is missing.
    """
    version_ids = msgspec.json.decode(body, type=list[str])
    bundle = Bundle(read_all(reader, Version, "versions", ids=version_ids)) if version_ids else Bundle()
    if len(bundle) != len(version_ids):
        raise StoreError(f"{reader.path}: Versions of {of} are missing from the record.")
    return bundle


class Declared(Protocol):
    """A handle that code of this process reads."""

    @property
    def default_version(self) -> Version: ...


declared: dict[str, Declared] = {}
"""Name → handle, of every resource that this process has declared; `whet.resource` adds to it."""


def refuse_unknown(reader: DatabaseReader, bundle: Bundle, live: Bundle) -> None:
    """Refuse to release a name that nobody reads: it would change nothing, unnoticed.

    Names that are read are those that are live, that this process has declared, that a program which records here
    has declared, that the newest trajectories ran under, and that whet's own gateway and policy server read.

    Raises:
        InputError: names it, the known ones close to it, and what to do.
    """
    recorded = reader.rows(
        "SELECT DISTINCT v.key FROM (SELECT body FROM trajectories ORDER BY seq DESC LIMIT ?) t, "
        "json_each(CAST(t.body AS TEXT), '$.versions') v",
        [_NEWEST],
    )
    # "0" follows "/": the range of the keys with the prefix.
    states = reader.rows("SELECT key FROM states WHERE key >= ? AND key < ?", [DECLARED, DECLARED[:-1] + "0"])
    names = {*live, *declared, *GATEWAY, POLICY, *(str(name) for (name,) in recorded)}
    names |= {str(key).removeprefix(DECLARED) for (key,) in states}
    for name in sorted(set(bundle) - names):
        close = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.5)
        like = f"close to it: {', '.join(close)}" if close else f"known: {', '.join(sorted(names))}"
        raise InputError(
            f"nothing reads a resource called {name!r}: neither the record nor this program has it ({like}). "
            "Correct the name, or release it as a new one: --new-name (new_names=True)."
        )
