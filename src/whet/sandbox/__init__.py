"""Run code that we did not write: namespaces, seccomp, a warm process to fork from, the judge outside.

`Pool.call` gives one function one input and takes JSON back; `Pool.pair` runs an evaluator beside its
program and marks the score co-resident; `Local` runs trusted code without a sandbox and marks what
it scores.  Before its first use since the machine started a sandbox is attacked, and refused if an attack
succeeds (`whet.sandbox.check`).  A program never gets the network, or a file of the host.

The names are looked up when first used (PEP 562): `inside` is imported alone, too, by processes that have a single call
to make to the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import from_home

if TYPE_CHECKING:
    from .box import Local, Sandbox
    from .limits import CallResult, Limits
    from .pool import Pool
    from .staging import Source, exact
    from .unchecked import ProgramSession

_HOME = {
    "CallResult": "limits",
    "Limits": "limits",
    "Local": "box",
    "Pool": "pool",
    "ProgramSession": "unchecked",
    "Sandbox": "box",
    "Source": "staging",
    "exact": "staging",
}
"""Public name → module that defines it."""

__all__ = ["CallResult", "Limits", "Local", "Pool", "ProgramSession", "Sandbox", "Source", "exact"]

if not TYPE_CHECKING:  # to a type checker this would make every misspelt name valid

    def __getattr__(name: str) -> object:
        return from_home(__name__, _HOME, name)
