"""Run code that we did not write: namespaces, seccomp, a warm process to fork from, the judge outside.

`Pool.call` gives one function one input and takes JSON back; `Pool.pair` runs an evaluator beside its
program and marks the score co-resident; `Local` runs trusted code without a sandbox and marks what
it scores.  Before its first use since the machine started a sandbox is attacked, and refused if an attack
succeeds (`whet.sandbox.check`).  A program never gets the network, or a file of the host.
"""

from .box import Local, Sandbox
from .limits import CallResult, Limits
from .pool import Pool
from .staging import Source, exact
from .unchecked import ProgramSession

__all__ = ["CallResult", "Limits", "Local", "Pool", "ProgramSession", "Sandbox", "Source", "exact"]
