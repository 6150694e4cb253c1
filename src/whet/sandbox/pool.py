"""Evaluations in a sandbox that has been attacked first: the judge stands out here.

Untrusted code gets one input per call and answers in JSON; expected answers never enter, and what
comes back is compared out here with `exact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .box import Local, Sandbox
from .check import require
from .limits import Limits
from .unchecked import UncheckedPool


class Pool(UncheckedPool):
    """Warm processes that fork each evaluation into fresh namespaces; use it in one event loop.

    >>> async with Pool(modules=("numpy",), workers=2) as pool:
    ...     result = await pool.call("def double(x): return 2 * x", "double", [21])
    >>> result.value
    42

    Before its first use since the machine started a sandbox is attacked, and refused if an attack succeeds.

    Args:
        sandbox: how it is shut in and limited; `Local()` for trusted code without a sandbox.
        modules: imported once, before the first fork.
        workers: evaluations at a time.
    """

    def __init__(
        self,
        sandbox: Sandbox | Local | Limits | None = None,
        *,
        modules: Sequence[str] = (),
        workers: int = 1,
    ) -> None:
        super().__init__(sandbox, modules=modules, workers=workers)
        self._admitted = False
        self._admitting = asyncio.Lock()

    async def _admit(self) -> None:
        # Without the lock the first calls, made at once, would each run all the attacks.
        async with self._admitting:
            if not self._admitted:
                await require(self.sandbox)
                self._admitted = True
