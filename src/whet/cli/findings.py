"""`whet findings`: what looks like a hacked reward, and what people decided about it."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from .root import Print, Record, command, existing, print_json

if TYPE_CHECKING:
    from ..record.store.findings import RewardFinding


@command("findings")
def findings(
    *,
    store: Record,
    clear: str | None = None,
    confirm: str | None = None,
    by: str | None = None,
    why: str = "",
    all: bool = False,
    json: Print = False,
) -> int:
    """List what looks like a hacked reward, and clear or confirm it: whet findings --store runs.db

    The gate, whet improve, whet evolve and whet train look at what a candidate's runs show beside its score: tampering,
    loops, one answer for all inputs, a score that rises while gold does not, and more. A finding keeps its
    candidate from being released until a person clears it, or a stricter version of the reward judges the candidate
    again without it. Exits 1 if a finding is open.

    Parameters
    ----------
    clear
        The id of a finding that is no hack: you looked at its runs. Needs --why.
    confirm
        The id of a finding that is one: its runs are kept as exploits, which whet audit --store holds evaluators to.
    by
        Who says so; the name of this machine's user if omitted.
    why
        The reason, for the record.
    all
        List the cleared ones too.
    """
    from ..record import reviewing
    from ..record.store import Store
    from ..record.store.findings import all_findings

    if clear is not None and confirm is not None:
        raise InputError("a finding is cleared or confirmed, not both: give --clear or --confirm")
    with Store(existing(store)) as opened:
        person = by or getpass.getuser()
        if clear is not None:
            reviewing.clear(opened, clear, by=person, why=why)
        if confirm is not None:
            reviewing.confirm(opened, confirm, by=person, why=why)
        known = all_findings(opened.database)
    shown = [finding for finding in known if all or finding.open or finding.id in (clear, confirm)]
    if json:
        print_json(
            [{**msgspec.to_builtins(finding), "id": finding.id, "open": finding.open} for finding in shown]
        )
    else:
        print("\n".join(line for finding in shown for line in lines(finding)) or "no finding is open")
    return int(any(finding.open for finding in known))


def lines(finding: RewardFinding) -> Iterator[str]:
    """A finding as text."""
    state = "open" if finding.open else f"cleared by {finding.cleared_by}: {finding.cleared_why}"
    confirmed = f", confirmed by {finding.confirmed_by}" if finding.confirmed_by else ""
    yield f"{finding.id} {finding.kind} on Bundle {finding.bundle}: {finding.sentence}"
    yield f"    {state}{confirmed}; runs: {', '.join(finding.runs[:5]) or 'none'}"
    if finding.open:
        yield f"    to clear it, {finding.remedy}"
