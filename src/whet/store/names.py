"""Which names of resources somebody reads: a release of any other would change nothing, unnoticed."""

from __future__ import annotations

import difflib
from typing import Protocol

from ..errors import InputError
from ..types import Bundle, Version
from .access import Rows

GATEWAY_MODEL, GATEWAY_PARAMETERS = "gateway.model", "gateway.parameters"
GATEWAY_PROMPT, GATEWAY_ROUTE = "gateway.system_prompt", "gateway.route"
GATEWAY = (GATEWAY_MODEL, GATEWAY_PARAMETERS, GATEWAY_PROMPT, GATEWAY_ROUTE)
"""What the gateway reads."""
POLICY = "policy"
"""What `whet train` writes and `whet serve-policy` reads, unless they are told another name."""
DECLARED = "resources/"
"""Prefix of the states that say which resources a program of this record has declared."""
_NEWEST = 10_000
"""Trajectories that are looked through for what they ran under."""


class Declared(Protocol):
    """A handle that code of this process reads."""

    @property
    def default_version(self) -> Version: ...


declared: dict[str, Declared] = {}
"""Name → handle, of every resource that this process has declared; `whet.resource` adds to it."""


def known_names(source: Rows, live: Bundle) -> set[str]:
    """Names that code reads or that the record has seen used.

    They are those that are live, that this process has declared, that a program which records here has
    declared, that the newest trajectories ran under, and that whet's own gateway and policy server read.
    """
    recorded = source.rows(
        "SELECT DISTINCT v.key FROM (SELECT body FROM trajectories ORDER BY seq DESC LIMIT ?) t, "
        "json_each(CAST(t.body AS TEXT), '$.versions') v",
        [_NEWEST],
    )
    states = source.rows("SELECT key FROM states WHERE key >= ? AND key < ?", [DECLARED, DECLARED[:-1] + "0"])
    said = {str(key).removeprefix(DECLARED) for (key,) in states}
    return {*live, *declared, *said, *GATEWAY, POLICY, *(str(name) for (name,) in recorded)}


def refuse_unknown(names: set[str], known: set[str]) -> None:
    """Refuse a name that nobody reads.

    Raises:
        InputError: names it, the known ones close to it, and what to do.
    """
    for name in sorted(names - known):
        close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
        like = f"close to it: {', '.join(close)}" if close else f"known: {', '.join(sorted(known))}"
        raise InputError(
            f"nothing reads a resource called {name!r}: neither the record nor this program has it ({like}). "
            "Correct the name, or release it as a new one: --new-name (new_names=True)."
        )
