"""The release log, the resource names that are read, and the Verdict that a release stands on.

A Bundle that is recorded (`Store.put_bundle`) can be run under by its id; only a release makes it live, and every
rollout, worker, gateway, traced program and policy server that names no other Bundle gets the live one.  Its name is
"live"; another name is another log, for what a canary or a shadow follows.  Reading and checking are here; the
methods that write are `Store`'s.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ...errors import GateError, InputError, StoreError
from ...types import Bundle, Verdict, Version
from .codec import decode
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


@dataclass(frozen=True, slots=True)
class Release:
    """One entry of the release log of a name."""

    id: str
    name: str
    bundle: Bundle
    previous: str | None
    """`id` of the release that a rollback of this one goes back to; None is the agent as it came."""
    at: float
    """Unix time in seconds."""
    reason: str
    verdict: str | None = None
    """`id` of the Verdict that it was released on."""
    unproven: bool = True
    """Released without a proof, on request."""


def history(reader: DatabaseReader, name: str, last: int | None) -> list[Release]:
    """See `Store.history`."""
    rows = reader.rows(
        "SELECT id, previous, at, reason, verdict, unproven, body FROM releases WHERE name = ? "
        "ORDER BY seq DESC LIMIT ?",
        # To SQLite a LIMIT of -1 is none.
        [name, -1 if last is None else last],
    )
    return [
        Release(
            id,
            name,
            stored_bundle(reader, body, f"release {id}"),
            previous,
            at,
            reason,
            verdict,
            bool(unproven),
        )
        for id, previous, at, reason, verdict, unproven, body in reversed(rows)
    ]


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


def read_verdicts(reader: DatabaseReader, *candidates: str) -> list[Verdict]:
    """Verdicts in the order in which they were recorded; `candidates` are the ids of the Bundles that they are on."""
    where = f"WHERE candidate IN ({', '.join('?' * len(candidates))}) " if candidates else ""
    return [
        decode(body, Verdict)
        for (body,) in reader.rows(f"SELECT body FROM verdicts {where}ORDER BY seq", list(candidates))
    ]


def proof_of(
    reader: DatabaseReader, bundle: Bundle, merged: Bundle, verdict: Verdict | None, *, unproven: bool
) -> Verdict | None:
    """The Verdict that a release stands on; None where it is released without one.

    Args:
        merged: `bundle` beside what is live under other names.
        verdict: the newest recorded one if None.

    Raises:
        GateError: no Verdict promotes this Bundle.
        InputError: the Verdict is on another one.
    """
    if verdict is None:
        verdicts = read_verdicts(reader, bundle.id, merged.id)
        verdict = verdicts[-1] if verdicts else None
        if verdict is None:
            if unproven:
                return None
            if any(version.kind == PROGRAM for version in bundle.values()):
                raise GateError(
                    f"nothing has proven {', '.join(sorted(bundle))}: its evaluator ran beside it, so its score "
                    "steers a search and proves nothing. Try it on work that the search did not see, then release "
                    "it as it is: --unproven (unproven=True)."
                )
            raise GateError(
                f"nothing has proven Bundle {bundle.id} ({', '.join(sorted(bundle))}): the record has no Verdict "
                "on it. Judge it first (whet gate, Experiment.gate), or release it as it is: --unproven "
                "(unproven=True)."
            )
    if verdict.candidate not in (bundle.id, merged.id):
        raise InputError(
            f"the Verdict is on Bundle {verdict.candidate or '(none named)'}, and this is {bundle.id}. "
            "Give the Verdict on it (Verdict.candidate), or release it with unproven=True."
        )
    if verdict.promote:
        return verdict
    if unproven:
        return None
    why = f" {verdict.reasons[0]}" if verdict.reasons else ""
    raise GateError(
        f"the Verdict on Bundle {bundle.id} does not promote it.{why} Improve it, or release it all the "
        "same: --unproven (unproven=True)."
    )
